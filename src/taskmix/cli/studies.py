"""Commands for studies, which are several runs with a purpose."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from taskmix.cli.base import (
    DataOption,
    KeepOption,
    QuietOption,
    RunFile,
    RunFolder,
    Sets,
    StorageOption,
    StudyFolder,
    WorkersOption,
    command,
    folder_name,
    seeds_of,
    values_of,
)
from taskmix.cli.running import print_result
from taskmix.cli.terminal import busy, err, out, print_report, print_sentence, print_tables, showing

if TYPE_CHECKING:
    from taskmix.config import RunConfig
    from taskmix.studies.comparison import Comparison


@command(
    "taskmix compare small-glue.yaml --seeds 1-5",
    "taskmix compare small-glue.yaml --policies random,task_size --seeds 1,2,3,4,5",
    'taskmix compare glue.yaml --policies "random, {name: temperature, temperature: 2, as: warm}"',
    "taskmix compare small-glue.yaml --policies random,exp3s --equal compute --baseline random",
    'taskmix compare g.yaml --policies "random, {as: slow, optimizer: {lr: 1.0e-6}}, alone"',
    "taskmix compare small-glue.yaml --policies random,task_size --workers 2 --format json",
)
def compare(
    file: RunFile,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Names or YAML mappings, separated by commas; alone: each task by itself. "
            "Default: uniform sampling and the file's policy, aimed if it names none."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds: 1,2,3 or 1-3.")] = "1",
    equal: Annotated[
        Literal["steps", "examples", "compute"] | None,
        typer.Option(help="What each run gets the same amount of; default: as the file says."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The policy that the others are compared with; default: the first."),
    ] = None,
    style: Annotated[
        Literal["text", "markdown", "csv", "json"],
        typer.Option("--format", help="text also writes a report; csv: a row a run and task."),
    ] = "text",
    to: StudyFolder = None,
    keep: KeepOption = False,
    workers: WorkersOption = 1,
    sets: Sets = None,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run several policies at the same budget and compare their scores.

    `as` gives a policy a short name; with other keys of a run file, it makes a contestant that
    differs in them. Differences to the baseline are paired by seed; with three or more seeds they
    have intervals and a test. More seeds and contestants extend a study; the tables have all runs
    of its folder.
    """
    from taskmix import config as configs
    from taskmix.config.overrides import policy_from

    config = configs.load(file, sets or (), data)  # before torch is imported
    from taskmix.studies.compare import with_uniform

    folder = to or Path("studies") / folder_name(config, file)
    deciders: list[Any] = with_uniform(config)
    if policies is not None:
        deciders = [policy_from(entry, file.parent) for entry in values_of(policies, "--policies")]
    comparison = run_comparison(
        config,
        deciders,
        seeds_of(seeds),
        folder,
        quiet,
        workers,
        equal=equal,
        baseline=baseline,
        keep_checkpoints=keep,
    )
    if style == "text":
        print_comparison(comparison, folder)
    elif style == "json":
        print(json.dumps(comparison.to_json(), indent=2))
    elif style == "csv":
        print(comparison.runs_table().csv(), end="")
    else:
        print(*(table.markdown() for table in comparison.tables()), sep="\n")
        print(comparison.verdict().sentence)


def run_comparison(
    config: "RunConfig",
    deciders: Sequence[Any],
    seeds: Sequence[int],
    to: Path,
    quiet: bool,
    workers: int = 1,
    **options: Any,
) -> "Comparison":
    from taskmix.studies.compare import compare as compare_deciders
    from taskmix.studies.contestants import ALONE

    runs = sum(len(config.tasks) if decider == ALONE else 1 for decider in deciders)
    with showing(quiet, workers, runs * len(seeds)) as view:
        return compare_deciders(config, deciders, seeds, to, workers=workers, watch=view, **options)


def print_comparison(comparison: "Comparison", folder: Path) -> None:
    from taskmix.report.page import write_report

    print_tables(comparison.tables())
    print_sentence(comparison.verdict().sentence)
    print_report(lambda: write_report(folder, comparison.baseline))


@command(
    "taskmix autosem glue.yaml --primary glue/rte --candidates glue/mrpc,glue/qqp",
    "taskmix autosem glue.yaml --primary glue/rte --seeds 7,8,9 --prune --warm-start --workers 2",
    "taskmix autosem glue.yaml --primary glue/rte --storage postgresql://user@host/studies",
)
def autosem(
    file: RunFile,
    primary: Annotated[str, typer.Option(help="The task that the others are to help.")],
    candidates: Annotated[
        str | None,
        typer.Option(help="Auxiliary tasks to choose from, separated by commas; default: all."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds of the final runs, other than the file's; default: the next 5."),
    ] = None,
    without: Annotated[
        Literal["selection", "search"] | None,
        typer.Option(help="Skip a stage: selection, or search (a grid is tried instead)."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of stage 1.")] = 200,
    batches: Annotated[int, typer.Option(help="Mini-batches in a round.")] = 10,
    trials: Annotated[int, typer.Option(help="Mixing ratios that stage 2 tries.")] = 20,
    initial: Annotated[int, typer.Option(help="Random ratios among them, at the start.")] = 10,
    prune: Annotated[bool, typer.Option(help="Stop unpromising trials early.")] = False,
    warm_start: Annotated[
        bool, typer.Option(help="Start stage 2 from the rounds of stage 1, not at random.")
    ] = False,
    trial_budget: Annotated[
        float, typer.Option(help="The fraction of the budget that each trial gets.")
    ] = 1.0,
    to: StudyFolder = None,
    keep: KeepOption = False,
    storage: StorageOption = None,
    workers: WorkersOption = 1,
    sets: Sets = None,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find which tasks help a primary task and in what ratio, and train with it."""
    from taskmix import config as configs
    from taskmix.report.page import write_report
    from taskmix.studies.autosem import AutosemSettings, PlannedCost
    from taskmix.studies.autosem import autosem as run_study

    config = configs.load(file, sets or (), data)
    folder = to or Path("studies") / f"{folder_name(config, file)}-autosem"
    settings = AutosemSettings(
        rounds=rounds,
        batches=batches,
        trials=trials,
        initial=initial,
        prune=prune,
        warm_start=warm_start,
        trial_budget=trial_budget,
        without=without,
    )
    names = None if candidates is None else list(map(str, values_of(candidates, "--candidates")))
    note = " Runs that the folder has already are not trained again." if folder.exists() else ""

    def announce(cost: PlannedCost) -> None:
        if not quiet:
            err.print(cost.sentence() + note, soft_wrap=True)

    with showing(quiet, workers) as view:
        result = run_study(
            config,
            primary,
            names,
            folder,
            settings=settings,
            seeds=seeds_of(seeds) if seeds is not None else (),
            storage=storage,
            workers=workers,
            keep_checkpoints=keep,
            watch=view,
            announce=announce,
        )
    if quiet:
        out.print(f"{100 * mean(run.value for run in result.finals):.2f}")
        return
    print_tables(result.tables())
    print_report(lambda: write_report(folder))


@command(
    "taskmix adapt runs/glue --task scitail --from best --fraction 0.01 --out runs/scitail",
    "taskmix adapt runs/glue --task scitail --from glue/mnli --set budget.steps=200 --out runs/s",
)
def adapt(
    folder: RunFolder,
    task: Annotated[str, typer.Option(help="The new task, as a run file describes it.")],
    to: Annotated[Path, typer.Option("--out", help="Folder of the new run.")],
    source: Annotated[
        str,
        typer.Option("--from", help="The task whose embedding it starts from, random or best."),
    ] = "random",
    train_all: Annotated[
        bool,
        typer.Option("--train-all/--freeze", help="Train all, or the new row and head alone."),
    ] = False,
    fraction: Annotated[
        float, typer.Option(help="Share of the training rows; 0 prints the zero-shot table alone.")
    ] = 1.0,
    sets: Sets = None,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Add a task to a trained task-conditioned model."""
    from taskmix.config import read_value
    from taskmix.studies.adapt import adapt as adapt_run
    from taskmix.training.folder import config_of

    with showing(quiet) as view:
        adapted = adapt_run(
            folder,
            read_value(task, f"--task {task}"),
            to,
            source=source,
            train_all=train_all,
            fraction=fraction,
            sets=sets or (),
            data=data,
            watchers=[view(config_of(folder), task)],
        )
    if not quiet:
        print_tables(adapted.tables())
    if adapted.finished is not None:
        print_result(adapted.finished, to, quiet)


@command("taskmix analyse runs/glue --single runs/rte --single runs/cola")
def analyse(
    folder: RunFolder,
    single: Annotated[
        list[Path] | None, typer.Option(help="A finished run of one task alone; repeatable.")
    ] = None,
    data: DataOption = None,
) -> None:
    """Show the scores, similarity and difficulty of a model's tasks, and its parameters."""
    from taskmix.report.analysis import write_analysis
    from taskmix.studies.analyse import analyse as analyse_run
    from taskmix.training.folder import config_of

    with busy("analysing"):
        analysis = analyse_run(folder, single or (), data=data)
    first, *others = analysis.tables()
    print_tables([first])
    for name, value in analysis.facts().items():
        out.print(f"{name}: {value}")
    print_tables(others)
    print_report(lambda: write_analysis(analysis, folder, config_of(folder).name))


@command(
    "taskmix bandit --policies exp3s,counterfactual --arms 8 --steps 1000 --environments 8"
    " --seeds 10"
)
def bandit(
    policies: Annotated[
        str, typer.Option(help="Names, separated by commas; default: all of them.")
    ] = "",
    arms: Annotated[int, typer.Option(help="Tasks.")] = 8,
    steps: Annotated[int, typer.Option(help="Draws in a run.")] = 1000,
    environments: Annotated[int, typer.Option(help="Bandits.")] = 8,
    seeds: Annotated[int, typer.Option(help="Runs of each policy in each bandit.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed that the bandits are drawn with.")] = 0,
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise in a loss.")] = 0.0,
    to: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path(
        "studies/bandit"
    ),
) -> None:
    """Compare policies in the synthetic multi-task bandit: no training, some seconds."""
    from taskmix.report.bandit import POLICIES, bandit_report

    names = list(map(str, values_of(policies, "--policies"))) if policies else POLICIES
    with busy("simulating"):
        report = bandit_report(
            to,
            names,
            arms=arms,
            steps=steps,
            environments=environments,
            seeds=seeds,
            seed=seed,
            noise=noise,
            workers=min(2, os.cpu_count() or 1),
        )
    print_tables(report.tables())
    out.print(f"Report: {to / 'report.html'}", soft_wrap=True)
