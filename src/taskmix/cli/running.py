"""Commands that plan, train and resume a run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskmix.cli.base import (
    DataOption,
    QuietOption,
    RunFile,
    RunFolder,
    Sets,
    command,
    folder_name,
)
from taskmix.cli.terminal import out, print_report, print_sentence, print_tables, showing
from taskmix.tables import duration
from taskmix.training.launch import launched

if TYPE_CHECKING:
    from taskmix.training.folder import Finished


@command(
    "taskmix run small-glue.yaml",
    "taskmix run small-glue.yaml --set policy=task_size --set seed=2 --out runs/size-2",
    "torchrun --nproc-per-node 2 -m taskmix run small-glue.yaml",
)
def run(
    file: RunFile,
    to: Annotated[
        Path | None, typer.Option("--out", help="Run folder; default: runs/NAME.")
    ] = None,
    sets: Sets = None,
    data: DataOption = None,
    go_on: Annotated[
        bool, typer.Option("--resume", help="Resume the run of this file that the folder holds.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Rename a run that the folder holds, and start anew.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Train a model as a run file describes it.

    SIGTERM and SIGUSR1, which clusters send before they stop a job, write a checkpoint and end the
    run with exit code 75: resume it. Ctrl-C does the same with exit code 130.
    """
    from taskmix import config as configs
    from taskmix.training.folder import check_no_run, put_aside

    config = configs.load(file, sets or (), data)
    folder = to or Path("runs") / folder_name(config, file)
    fresh = not (go_on or force or launched().restarts or config.budget.epochs)
    if fresh and launched().count == 1:  # before torch is imported, which takes seconds
        check_no_run(folder, config)
    from taskmix.training.run import configured
    from taskmix.training.run import run as run_config

    config = configured(config)
    if force and not go_on and launched().rank == 0:
        aside = put_aside(folder)
        if aside is not None and not quiet:
            out.print(f"The run that was in {folder} is now in {aside}.", soft_wrap=True)
    with showing(quiet) as view:
        result = run_config(config, folder, resume=go_on, watchers=[view(config)])
    print_result(result, folder, quiet)


@command(
    "taskmix resume runs/small-glue",
    "taskmix resume runs/small-glue --drop glue/rte --add glue/wnli",
    "taskmix resume runs/small-glue --steps 4000",
)
def resume(
    folder: RunFolder,
    add: Annotated[
        list[str] | None, typer.Option(help="A task to add, as a run file describes it.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A task to drop.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="The new total budget, also of a finished run.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Resume a run from its last checkpoint, bit for bit.

    Exit codes are those of `taskmix run`: 75 asks for another resume.
    """
    from taskmix.config import read_value
    from taskmix.training.change import change_tasks, extend
    from taskmix.training.folder import config_of, config_to_resume
    from taskmix.training.ranks import joined
    from taskmix.training.run import resume_run
    from taskmix.training.watching import Watchers

    entries = [read_value(task, f"--add {task}") for task in add or ()]
    with joined(config_to_resume(folder)) as ranks, showing(quiet) as view:
        if steps is not None:
            ranks.agreed(lambda: extend(folder, steps))
        watcher = view(config_of(folder))
        if add or drop:
            ranks.agreed(
                lambda: change_tasks(
                    folder, add=entries, drop=drop or (), watchers=Watchers([watcher])
                )
            )
        result = resume_run(folder, watchers=[watcher])
    print_result(result, folder, quiet)


@command(
    "taskmix plan small-glue.yaml",
    "taskmix plan small-glue.yaml --set policy=task_size",
    "taskmix plan small-glue.yaml --from runs/small-glue",
)
def plan(
    file: RunFile,
    sets: Sets = None,
    data: DataOption = None,
    cost: Annotated[
        bool | None,
        typer.Option(
            "--cost/--no-cost",
            help="Estimate time and disk from a few steps; default: unless the encoder is of the"
            " hub or a bilstm.",
            show_default=False,
        ),
    ] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="A finished run of the same tasks: predict scores and better shares from it; "
            "several times, oldest first.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show how a run would spend its budget on each task, and estimate time and disk."""
    from taskmix import config as configs

    config = configs.load(file, sets or (), data)  # before torch is imported
    from taskmix.studies.plan import plan as plan_run

    with showing(quiet=as_json) as view:
        planned = plan_run(config, cost=cost, earlier=earlier or (), watchers=[view(config)])
    if as_json:
        print(json.dumps(planned.to_json(), indent=2))
    else:
        print_tables(planned.tables())


def print_result(result: "Finished", folder: Path, quiet: bool) -> None:
    """Print the scores of a finished run, and write its report."""
    if launched().rank:
        return
    from taskmix.report.page import write_run_report
    from taskmix.report.run_body import run_table, run_verdict
    from taskmix.report.run_data import read_run
    from taskmix.studies.comparison import unit_of
    from taskmix.studies.paired import LOSSES
    from taskmix.training.folder import config_of

    if quiet:
        by_loss = unit_of(config_of(folder).objective) is LOSSES
        if by_loss and result.objective is not None:
            out.print(LOSSES.level(result.objective))
        else:
            out.print(f"{100 * result.score:.2f}")
        return
    run = read_run(folder)
    title = f"{run.policy}, {duration(run.history.seconds)}"
    print_tables([replace(run_table(run), title=title)])
    print_sentence(run_verdict(run))
    out.print(f"Run folder: {folder}", soft_wrap=True)
    print_report(lambda: write_run_report(folder))
