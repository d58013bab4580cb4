"""The command line: a thin shell over the library."""

import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from taskmix.errors import TaskmixError, UserError
from taskmix.progress import Bars, Lines, Quiet, View, live
from taskmix.training.launch import launched

if TYPE_CHECKING:
    from rich.progress import Progress

    from taskmix.config import Objective, RunConfig
    from taskmix.studies.autosem import AutosemResult
    from taskmix.studies.compare import Comparison
    from taskmix.studies.improve import ImproveSettings, PolicyEstimate
    from taskmix.studies.paired import Unit
    from taskmix.training.folder import Finished, Scores
    from taskmix.training.inference import Prediction

app = typer.Typer(
    name="taskmix",
    help="Spends a training budget across tasks.\n\n"
    "Try `taskmix demo`, then `taskmix run FILE` with a run file of your own:\n\n"
    "    tasks: [glue/cola, glue/rte]\n\n"
    "    policy: exp3s\n\n"
    "    budget: {steps: 2000, batch: 16}",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
COUNTED = {
    "steps": "",
    "examples": "as many examples as in ",
    "compute": "as many examples passed forward and backward as in ",
}
"""How a budget is told, by what it counts."""
MOST_RATIOS = 10
"""Ratios in a table; the report has all of them."""
PLANNED = ("rows", "cut", "dev rows", "cut", "tokens each", "share of examples", "epochs")
out = Console(highlight=False, markup=False, emoji=False)  # names are printed as they are

DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Folder of the official data sets; TASKMIX_DATA if not given."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]
TrustOption = Annotated[
    bool,
    typer.Option("--trust-code", help="Import the classes of its own that the run names."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")]
RunFile = Annotated[Path, typer.Argument(metavar="FILE", help="A run file.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. budget.steps=500."),
]
StudyFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder; studies/NAME if not given.")
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="postgresql://... that several machines share, or sqlite:///PATH.",
    ),
]
WorkersOption = Annotated[int, typer.Option(min=1, help="Processes on this machine.")]


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2."""
    try:
        app()
    except TaskmixError as error:
        if launched().local == 0:  # of several ranks, one on each machine says it
            print(f"taskmix: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # the world's fault: a full disk, a folder that may not be written
        print(f"taskmix: {error}", file=sys.stderr)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Print the version if it is asked for; every command passes through here."""
    command, ranks = context.invoked_subcommand, launched().count
    if ranks > 1 and command not in ("run", "resume"):
        raise UserError(
            f"{command}: expected one process, found {ranks} ranks; only run and resume"
            " train with several"
        )
    if show:
        import taskmix

        print(f"taskmix {taskmix.__version__}")
        raise typer.Exit


class Shower:
    """Makes the view of each run: a bar on a terminal, lines elsewhere, nothing if quiet."""

    def __init__(self, progress: "Progress | None", quiet: bool) -> None:
        self._progress = progress
        self._quiet = quiet

    def view(self, config: "RunConfig", title: str = "") -> View:
        """Make the view of one run."""
        if self._quiet:
            return Quiet()
        if self._progress is not None:
            return Bars(self._progress, title or config.name, config)
        return Lines(out, title or config.name, config)


@contextmanager
def showing(quiet: bool) -> Iterator[Shower]:
    """Show runs, on a terminal as bars; of several ranks the first one does."""
    quiet = quiet or not launched().first
    if quiet or not out.is_terminal:
        yield Shower(None, quiet)
        return
    with live(out) as progress:
        yield Shower(progress, quiet)


def busy(what: str) -> AbstractContextManager[object]:
    """Return a sign of life on a terminal, for what has no steps to count."""
    return out.status(what) if out.is_terminal else nullcontext()


@app.command()
def run(
    file: RunFile,
    to: Annotated[
        Path | None, typer.Option("--out", help="Run folder; runs/NAME if not given.")
    ] = None,
    sets: Sets = None,
    data: DataOption = None,
    go_on: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run if the folder holds one of this file."),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Train as a run file says.

    SIGTERM and SIGUSR1, by which a cluster takes its machine back, write a checkpoint and end the
    run with exit code 75: resume it. Ctrl-C does the same with exit code 130.

    \b
    taskmix run small-glue.yaml
    taskmix run small-glue.yaml --set policy=task_size --set seed=2 --out runs/size-2
    torchrun --nproc-per-node 2 -m taskmix run small-glue.yaml
    """
    from taskmix import config as configs
    from taskmix.training.run import run as run_config

    config = configs.load(file, sets or (), data)
    folder = to or Path("runs") / config.name
    with showing(quiet) as shower:
        view = shower.view(config)
        result = run_config(config, folder, resume=go_on, watchers=[view])
    _tell(result, folder, quiet)


@app.command()
def resume(
    folder: RunFolder,
    add: Annotated[
        list[str] | None, typer.Option(help="A task to go on with, as a run file says it.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A task to go on without.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="The whole budget that it shall have, also of a finished run."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Go on with a run from its last checkpoint, bit for bit.

    Exit codes are those of `taskmix run`: 75 asks for another resume.

    \b
    taskmix resume runs/small-glue
    taskmix resume runs/small-glue --drop glue/rte --add glue/wnli
    taskmix resume runs/small-glue --steps 4000
    """
    from taskmix.config import read_value
    from taskmix.training.change import change_tasks, extend
    from taskmix.training.folder import config_of
    from taskmix.training.ranks import joined
    from taskmix.training.run import resume_run
    from taskmix.training.watching import Watchers

    entries = [read_value(task, f"--add {task}") for task in add or ()]
    with joined(config_of(folder)) as ranks, showing(quiet) as shower:
        if steps is not None:
            ranks.agreed(lambda: extend(folder, steps))
        view = shower.view(config_of(folder))
        if add or drop:
            told = Watchers([view])
            ranks.agreed(lambda: change_tasks(folder, add=entries, drop=drop or (), watchers=told))
        result = resume_run(folder, watchers=[view])
    _tell(result, folder, quiet)


def _tell(result: "Finished", folder: Path, quiet: bool) -> None:
    if not launched().first:
        return
    if quiet:
        out.print(f"{100 * result.score:.2f}")
        return
    from taskmix.report.page import write_run_report
    from taskmix.training.folder import config_of

    config = config_of(folder)
    out.print(_scores_table(result.tasks, result.score, config.objective, result.objective))
    unit = config.family.unit.removesuffix("s")
    target = config.decider.get("target") if config.objective is None else None
    why = f", for its score of the target {target}" if target in result.tasks else ""
    out.print(
        f"The model of {unit} {result.step} is kept{why}. Run folder: {folder}", soft_wrap=True
    )
    _report(lambda: write_run_report(folder))


def _report(write: Callable[[], Path]) -> None:
    try:
        out.print(f"Report: {write()}", soft_wrap=True)
    except UserError as error:  # the figures are an extra; the runs are finished without them
        out.print(f"No report: {error}", soft_wrap=True)


def _scores_table(
    tasks: dict[str, "Scores"],
    score: float,
    objective: "Objective | None" = None,
    value: float | None = None,
) -> Table:
    from taskmix.studies.compare import unit_of
    from taskmix.tasks.metrics import shown

    table = Table(Column("task", no_wrap=True), "metrics")
    table.add_column("loss", justify="right")
    table.add_column("score", justify="right")
    for name, scores in tasks.items():
        metrics = ", ".join(shown(metric, value) for metric, value in scores.metrics.items())
        table.add_row(name, metrics, f"{scores.loss:.3f}", f"{100 * scores.score:.1f}")
    table.add_section()
    table.add_row("mean", "", "", f"{100 * score:.1f}")
    if objective is not None and value is not None:
        told = unit_of(objective).level(value)
        by_loss = objective.measure == "loss"
        table.add_row(objective.words, "", told if by_loss else "", "" if by_loss else told)
    return table


@app.command()
def evaluate(
    folder: RunFolder,
    split: Annotated[str, typer.Option(help="Which split.")] = "dev",
    task: Annotated[
        str | None, typer.Option(help="One of the run's tasks; all if left out.")
    ] = None,
    data: DataOption = None,
    trust: TrustOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score the model of a finished run; tasks without labels in the split are named.

    \b
    taskmix evaluate runs/small-glue
    taskmix evaluate runs/small-glue --split test --task mine
    """
    from taskmix.training.inference import load_run

    with busy("scoring"):
        scores = load_run(folder, data=data, trust_code=trust).evaluate(split, task)
    score = mean(value.score for value in scores.values())
    if quiet:
        out.print(f"{100 * score:.2f}")
        return
    out.print(_scores_table(scores, score))


@app.command()
def predict(
    folder: RunFolder,
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="A file like the task's own, a split, or - for standard input."
        ),
    ],
    task: Annotated[str, typer.Option(help="Which of the run's tasks.")],
    style: Annotated[
        str,
        typer.Option(
            "--format",
            help="jsonl; mrqa for one mapping of ids to answers; "
            "glue for a benchmark's submission file.",
        ),
    ] = "jsonl",
    ids: Annotated[bool, typer.Option("--ids", help="Give each row's id with its answer.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Say how probable the answers are.")
    ] = False,
    input_format: Annotated[
        str | None,
        typer.Option("--input-format", help="The format of INPUT, where its name does not say it."),
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="Folder of submission files.")] = Path(
        "submission"
    ),
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a submission file that is there.")
    ] = False,
    data: DataOption = None,
    trust: TrustOption = False,
) -> None:
    """Predict each row of a file or split, one JSON value a line.

    \b
    taskmix predict runs/small-glue --task glue/rte new.tsv
    taskmix predict runs/small-glue --task glue/rte new.tsv --ids --probabilities
    taskmix predict runs/small-glue --task glue/rte - --input-format jsonl < new.jsonl
    taskmix predict runs/small-glue --task glue/rte test --format glue --out submission
    """
    from taskmix.errors import unknown
    from taskmix.tasks.submissions import mrqa_lines, submission_file, write_submission
    from taskmix.training.inference import load_run

    if style not in ("jsonl", "glue", "mrqa"):
        raise unknown("format", style, ["jsonl", "glue", "mrqa"], "--format")
    if style == "glue":
        submission_file(to, task, source, force=force)  # before anything is computed
    with busy("predicting"), _file_of(source) as place:
        trained = load_run(folder, data=data, trust_code=trust)
        found = trained.predictions(task, place, format=input_format)
    if probabilities and found[0].probability is None:
        raise UserError(f"--probabilities: a task such as {task} has none")
    if style == "glue":
        answers = [each.answer for each in found]
        written = write_submission(to, trained.task(task), source, answers, force=force)
        out.print(str(written), soft_wrap=True)
        return
    if style == "mrqa":
        print(*mrqa_lines((each.id, each.answer) for each in found), sep="\n")
        return
    for each in found:
        print(json.dumps(_answer(each, ids, probabilities), ensure_ascii=False))


def _answer(found: "Prediction", ids: bool, probabilities: bool) -> Any:
    """A prediction as it is printed: the answer, or a mapping that has it with what was asked."""
    if not ids and not probabilities:
        return found.answer
    values = {"id": found.id} if ids else {}
    values["answer"] = found.answer
    return values | ({"probabilities": found.probability} if probabilities else {})


@contextmanager
def _file_of(source: str) -> Iterator[str]:
    """Give what is to be predicted as something that can be read twice; standard input is saved."""
    if source not in ("-", "/dev/stdin"):
        yield source
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "standard-input")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield str(path)
        except UserError as error:  # nobody knows the copy by its name
            raise UserError(str(error).replace(str(path), "standard input")) from None


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder, or a study's.")],
    baseline: Annotated[
        str | None,
        typer.Option(help="In a study, the policy that the others are compared with."),
    ] = None,
) -> None:
    """Write the report of a run, finished or not, or of a study: report.html in its folder.

    \b
    taskmix report runs/small-glue
    taskmix report studies/small-glue --baseline random
    """
    from taskmix.report.page import write_report

    out.print(f"Report: {write_report(folder, baseline)}", soft_wrap=True)


@app.command()
def export(
    folder: RunFolder,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    task: Annotated[str, typer.Option(help="Which of the run's tasks.")],
    adapters: Annotated[
        bool, typer.Option(help="Write a language model's adapters for peft, not all of it.")
    ] = False,
) -> None:
    """Write one task's model as a folder that plain transformers loads.

    \b
    taskmix export runs/small-glue --task glue/rte rte-model
    """
    from taskmix.models.export import export as export_task
    from taskmix.training.folder import MODEL, finished

    finished(folder)
    with busy("exporting"):
        export_task(folder / MODEL, task, to, adapters=adapters)
    out.print(f"Written: {to}", soft_wrap=True)


@app.command()
def adapt(
    folder: RunFolder,
    task: Annotated[str, typer.Option(help="The new task, as a run file says it.")],
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
    """Give a trained task-conditioned model one task more.

    \b
    taskmix adapt runs/glue --task scitail --from best --fraction 0.01 --out runs/scitail
    taskmix adapt runs/glue --task scitail --from glue/mnli --set budget.steps=200 --out runs/s
    """
    from taskmix.config import read_value
    from taskmix.studies.adapt import adapt as adapt_run
    from taskmix.training.folder import config_of

    with showing(quiet) as shower:
        done = adapt_run(
            folder,
            read_value(task, f"--task {task}"),
            to,
            source=source,
            train_all=train_all,
            fraction=fraction,
            sets=sets or (),
            data=data,
            watchers=[shower.view(config_of(folder), task)],
        )
    if done.table and not quiet:
        table = Table(Column("embedding of", no_wrap=True), "head of")
        table.add_column("zero-shot score", justify="right")
        for each in done.table:
            table.add_row(each.row, each.head, f"{100 * each.score:.1f}")
        out.print(table)
    if done.finished is not None:
        _tell(done.finished, to, quiet)


@app.command()
def analyse(
    folder: RunFolder,
    single: Annotated[
        list[Path] | None, typer.Option(help="A finished run of one task alone; repeat it.")
    ] = None,
    data: DataOption = None,
) -> None:
    """Show what a model made of its tasks: similarity, spread, parameters, difficulty.

    \b
    taskmix analyse runs/glue --single runs/rte --single runs/cola
    """
    from taskmix.report.analysis import HEAD, facts, rows, write_analysis
    from taskmix.studies.analyse import analyse as analyse_run
    from taskmix.training.folder import config_of

    with busy("analysing"):
        found = analyse_run(folder, single or (), data=data)
    table = Table(Column(HEAD[0], no_wrap=True))
    for column in HEAD[1:]:
        table.add_column(column, justify="right")
    for row in rows(found):
        table.add_row(*row)
    out.print(table)
    for name, value in facts(found).items():
        out.print(f"{name}: {value}")
    if found.parameters is not None:
        out.print(str(found.parameters), soft_wrap=True)
    _report(lambda: write_analysis(found, folder, config_of(folder).name))


@app.command()
def parameters(file: RunFile, sets: Sets = None) -> None:
    """Count the parameters of a run file's model; loads no weights and no data.

    \b
    taskmix parameters glue.yaml --set model.conditional.rank=full
    """
    from taskmix import config as configs
    from taskmix.models.parameters import parameters_of

    config = configs.load(file, sets or ())
    names = [each if isinstance(each, str) else str(each.get("name")) for each in config.tasks]
    spec = config.model
    if any(each == "generate" for each in map(_kind_said, config.tasks)):
        spec = spec.model_copy(update={"causal": True, "encoder": spec.encoder or "small"})
    out.print(str(parameters_of(spec, names)), soft_wrap=True)


def _kind_said(entry: str | dict[str, Any]) -> str | None:
    """Return the kind of a run file's task, as far as it is known without reading its data."""
    from taskmix.tasks.catalogue import find_late

    name = entry if isinstance(entry, str) else str(entry.get("name"))
    if isinstance(entry, dict) and entry.keys() & {"train", "hub"}:
        return str(entry.get("kind"))
    try:
        return find_late(name).kind.name
    except UserError:  # a task made in Python; a file that is missing is no matter here
        return None


@app.command()
def tasks(
    data: DataOption = None,
    sizes: Annotated[bool, typer.Option(help="Count the rows of what was found.")] = True,
) -> None:
    """List the tasks that have names, and what was found of them.

    \b
    taskmix tasks --data ~/data
    """
    from taskmix.tasks import catalogue

    root = Path(data) if data else None
    table = Table(Column("task", no_wrap=True), "kind", "metrics", "found: rows")
    for entry in _tracked(catalogue.listing(root), "counting rows" if sizes else ""):
        found = _sizes(entry.name, root) if sizes and entry.found else ", ".join(entry.found)
        table.add_row(entry.name, entry.kind, ", ".join(entry.metrics), found or "-")
    out.print(table)


def _tracked(entries: Sequence[Any], title: str) -> Iterator[Any]:
    """Return a bar on a terminal while the entries are gone through."""
    if not title or not out.is_terminal:
        return iter(entries)
    return iter(track(entries, title, console=out, transient=True))


def _sizes(name: str, root: Path | None) -> str:
    from taskmix.tasks import catalogue
    from taskmix.tasks.sizes import rows_of

    try:
        splits = catalogue.find(name, root).splits
        return ", ".join(f"{split} {rows_of(source):,}" for split, source in splits.items())
    except UserError as error:  # one broken file must not hide the others
        return str(error)


@app.command()
def plan(file: RunFile, sets: Sets = None, data: DataOption = None) -> None:
    """Show what a run would spend on each task, and train nothing.

    \b
    taskmix plan small-glue.yaml
    taskmix plan small-glue.yaml --set policy=task_size
    """
    from taskmix import config as configs
    from taskmix.training.plan import plan as plan_run
    from taskmix.training.watching import Watchers

    config = configs.load(file, sets or (), data)
    table = Table(Column("task", no_wrap=True))
    for column in PLANNED:
        table.add_column(column, justify="right")
    with showing(quiet=False) as shower:
        planned = plan_run(config, watchers=Watchers([shower.view(config)]))
    for row in planned:
        table.add_row(
            row.task,
            f"{row.rows:,}",
            f"{row.cut:,}",
            f"{row.dev:,}",
            f"{row.dev_cut:,}",
            f"{row.length:.0f}",
            f"{row.share:.1%}",
            f"{row.epochs:.2f}",
        )
    out.print(table)
    out.print(_budget_words(config), soft_wrap=True)


def _budget_words(config: "RunConfig") -> str:
    """Return what there is to spend, in the unit of the decider's family."""
    tokens = config.budget.tokens
    size = f"{config.budget.batch:,}" if tokens is None else f"about {tokens:,} tokens"
    of = f"{config.length:,} {config.unit}, batches of {size}"
    said = f"Budget: {COUNTED[config.budget.count]}{of}."
    if config.budget.count == "compute":
        said += " Candidates and signals are paid from it, and the examples above are the most."
    if config.family.key != "weighting":
        return said
    share = float(config.decider.get("fraction", 1.0))
    target = config.decider.get("target")
    return f"{said} A round trains on {share:.0%} of each task's rows; the target is {target}."


@app.command()
def compare(
    file: RunFile,
    policies: Annotated[str, typer.Option(help="Names, or YAML mappings, with commas between.")],
    seeds: Annotated[str, typer.Option(help="Seeds with commas between.")] = "1",
    equal: Annotated[
        Literal["steps", "examples", "compute"] | None,
        typer.Option(help="What all get as much of; what the file's budget counts if not given."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The policy that the others are compared with; the first if not given."),
    ] = None,
    to: StudyFolder = None,
    storage: StorageOption = None,
    workers: WorkersOption = 1,
    sets: Sets = None,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run several policies at the same budget and compare their scores.

    A policy can be given a short name of one's own with `as`. Differences to the baseline are
    paired by seed; from two seeds on they have intervals and a test.

    \b
    taskmix compare small-glue.yaml --policies random,task_size --seeds 1,2,3,4,5
    taskmix compare glue.yaml --policies "random, {name: temperature, temperature: 2, as: warm}"
    taskmix compare small-glue.yaml --policies random,exp3s --equal compute --baseline random
    taskmix compare small-glue.yaml --policies random,task_size --workers 2
    """
    from taskmix import config as configs
    from taskmix.config.overrides import policy_from
    from taskmix.studies.compare import check_contestants

    config = configs.load(file, sets or (), data)
    if equal is not None:
        config = configs.with_sets(config, [f"budget.count={equal}"])
    deciders = [policy_from(said, file.parent) for said in _list_of(policies, "--policies")]
    for said in deciders:
        configs.decided_by(config, said, file.parent, "--policies")
    check_contestants(config, deciders, baseline)
    folder = to or Path("studies") / config.name
    _compare(config, deciders, _seeds(config, seeds), folder, quiet, baseline, storage, workers)


def _list_of(text: str, option: str) -> list[Any]:
    from taskmix.config import read_value

    values = read_value(f"[{text}]", option)
    if not values:
        raise UserError(f"{option}: expected at least one value, found none")
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{option}: expected different values, found {value} twice")
    return list(values)


def _compare(
    config: "RunConfig",
    deciders: Sequence[Any],
    seeds: Sequence[int],
    to: Path,
    quiet: bool,
    baseline: str | None = None,
    storage: str | None = None,
    workers: int = 1,
) -> None:
    from taskmix.report.page import write_comparison_report
    from taskmix.studies.compare import compare as compare_deciders

    with showing(quiet) as shower:
        comparison = compare_deciders(
            config,
            deciders,
            seeds,
            to,
            baseline=baseline,
            storage=storage,
            workers=workers,
            watch=shower.view if workers == 1 else _sent_view(quiet),
        )
    out.print(_comparison_table(comparison))
    _tell_differences(comparison)
    _report(
        lambda: write_comparison_report(comparison.folders, to, config.name, comparison.baseline)
    )


def _sent_view(quiet: bool) -> "Callable[[RunConfig, str], View]":
    """Return what makes the views of several processes: lines, because bars would collide."""
    return _quiet_view if quiet else _lines_view


def _quiet_view(config: "RunConfig", title: str) -> View:
    return Quiet()


def _lines_view(config: "RunConfig", title: str) -> View:
    return Lines(out, title, config)


def _comparison_table(comparison: "Comparison") -> Table:
    """A row for each task and a column for each policy: policies are few, tasks may be many."""
    from taskmix.studies.paired import SCORES

    table = Table(Column("task", no_wrap=True))
    best = comparison.best()
    for policy in comparison.runs:
        table.add_column(policy, justify="right", style="bold" if policy == best else "")
    unit = comparison.unit
    for task in comparison.tasks:
        values = (comparison.value(name, task) for name in comparison.runs)
        table.add_row(task, *(_spread(found, unit) for found in values))
    table.add_section()
    if unit is SCORES:
        means = (comparison.score(name) for name in comparison.runs)
        table.add_row("mean", *(_spread(found, unit) for found in means))
    if comparison.objective is not None:
        outcomes = (comparison.outcome(name) for name in comparison.runs)
        table.add_row(comparison.objective.words, *(_spread(found, unit) for found in outcomes))
    passed = (mean(run.forward + run.backward for run in runs) for runs in comparison.runs.values())
    table.add_row("examples passed", *(f"{count:,.0f}" for count in passed))
    return table


def _tell_differences(comparison: "Comparison") -> None:
    """Print how much each policy is above the baseline, and whether that may be chance."""
    from taskmix.studies.paired import how_tested, interval_words, p_words

    judged = comparison.differences()
    if not judged:
        return
    unit = comparison.unit
    table = Table(Column(f"{unit.better} {comparison.baseline}", no_wrap=True))
    for policy, each in judged.items():
        table.add_column(policy, justify="right", style="bold" if each.significant else "")
    for task in comparison.tasks:
        found = comparison.differences(task).values()
        table.add_row(task, *(interval_words(each, unit) for each in found))
    table.add_section()
    name = "mean" if comparison.objective is None else comparison.objective.words
    table.add_row(name, *(interval_words(each, unit) for each in judged.values()))
    if any(each.p is not None for each in judged.values()):
        table.add_row("p", *map(p_words, judged.values()))
    out.print(table)
    out.print(how_tested(judged), soft_wrap=True)


def _spread(values: list[float], unit: "Unit") -> str:
    """Return the mean, and the range where there are several."""
    text = unit.level(mean(values))
    if len(values) > 1:
        text += f" ({unit.range(values)})"
    return text


@app.command()
def autosem(
    file: RunFile,
    primary: Annotated[str, typer.Option(help="The task that the others are to help.")],
    candidates: Annotated[
        str | None,
        typer.Option(help="Tasks that may help, with commas between; all others if not given."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds of the final training, with commas between.")
    ] = None,
    without: Annotated[
        Literal["selection", "search"] | None,
        typer.Option(help="Leave out a stage: selection, or search (a grid then)."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of stage 1.")] = 200,
    batches: Annotated[int, typer.Option(help="Mini-batches in a round.")] = 10,
    trials: Annotated[int, typer.Option(help="Mixing ratios that stage 2 tries.")] = 20,
    initial: Annotated[int, typer.Option(help="Of them, random ones at the start.")] = 10,
    prune: Annotated[bool, typer.Option(help="End hopeless trials early.")] = False,
    warm_start: Annotated[
        bool, typer.Option(help="Start stage 2 from stage 1's rounds, not at random.")
    ] = False,
    trial_budget: Annotated[
        float, typer.Option(help="The part of the budget that each ratio is tried with.")
    ] = 1.0,
    to: StudyFolder = None,
    storage: StorageOption = None,
    workers: WorkersOption = 1,
    sets: Sets = None,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find which tasks help a primary task and in what ratio, and train with it.

    \b
    taskmix autosem glue.yaml --primary glue/rte --candidates glue/mrpc,glue/qqp
    taskmix autosem glue.yaml --primary glue/rte --seeds 1,2,3 --prune --warm-start --workers 2
    taskmix autosem glue.yaml --primary glue/rte --storage postgresql://user@host/studies
    """
    from taskmix import config as configs
    from taskmix.studies.autosem import AutosemSettings
    from taskmix.studies.autosem import autosem as run_study

    config = configs.load(file, sets or (), data)
    folder = to or Path("studies") / f"{config.name}-autosem"
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
    with showing(quiet) as shower:
        result = run_study(
            config,
            primary,
            None if candidates is None else [str(n) for n in _list_of(candidates, "--candidates")],
            folder,
            settings=settings,
            seeds=_seeds(config, seeds) if seeds is not None else (),
            storage=storage,
            workers=workers,
            watch=shower.view if workers == 1 else _sent_view(quiet),
        )
    _tell_autosem(result, folder, quiet)


def _seeds(config: "RunConfig", seeds: str) -> list[int]:
    from taskmix.config import changed

    said = _list_of(seeds, "--seeds")
    return [changed(config, {"seed": seed}, "--seeds").seed for seed in said]


def _tell_autosem(result: "AutosemResult", folder: Path, quiet: bool) -> None:
    values = [run.value for run in result.finals]
    if quiet:
        out.print(f"{100 * mean(values):.2f}")
        return
    if result.selection.utilities:
        out.print(_utilities_table(result))
    out.print(_ratios_table(result))
    out.print(result.verdict(), soft_wrap=True)
    for run in result.finals:
        out.print(f"Seed {run.seed}: {100 * run.value:.1f}. Run folder: {run.folder}")
    from taskmix.report.autosem import write_autosem_report

    _report(lambda: write_autosem_report(result, folder))


def _utilities_table(result: "AutosemResult") -> Table:
    table = Table(Column("task", no_wrap=True))
    for column in ("utility", "95% interval", "rounds", "selected"):
        table.add_column(column, justify="right")
    for each in result.selection.utilities:
        chosen = "yes" if each.task in result.selection.auxiliaries else "no"
        mark = "primary" if each.task == result.primary else chosen
        span = f"{each.low:.2f} to {each.high:.2f}"
        table.add_row(each.task, f"{each.mean:.2f}", span, str(each.pulls), mark)
    return table


def _ratios_table(result: "AutosemResult") -> Table:
    """Return the best of the ratios that were tried."""
    table = Table(Column("ratio " + ":".join(result.ratio), no_wrap=True))
    for column in ("dev", "steps", ""):
        table.add_column(column, justify="right")
    for each in result.search.ranked()[:MOST_RATIOS]:
        mark = "pruned" if each.pruned else "best" if each is result.search.best else ""
        mark = "primary alone" if each is result.search.alone and not mark else mark
        ratio = ":".join(map(str, each.ratio.values()))
        table.add_row(ratio, f"{100 * each.value:.1f}", f"{each.spent.steps:,}", mark)
    return table


@app.command()
def estimate(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders or journals.")],
    policy: Annotated[Path, typer.Option(help="A policy file.")],
    method: Annotated[
        str, typer.Option(help="is, wis, clipped_is, dm, dr, sndr or switch_dr.")
    ] = "wis",
    pool: Annotated[str, typer.Option(help="own or balance.")] = "own",
    reward: Annotated[str, typer.Option(help="room_left or prediction_gain.")] = "room_left",
) -> None:
    """Estimate what a policy would have earned at the states that finished runs visited.

    A policy that learns watches the journals, and is judged by what it comes to.

    \b
    taskmix estimate runs/small-glue --policy policy.yaml
    """
    from taskmix.studies.improve import estimate_runs

    with _warned():
        _judgement(estimate_runs(runs, policy, method, pool, reward))


@app.command()
def improve(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, oldest first; or a run file."),
    ],
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The policy file; with a run file, the folder."),
    ] = None,
    iterations: Annotated[
        int, typer.Option(min=0, help="Run a run file, improve, run again, so many times.")
    ] = 0,
    weight: Annotated[
        str,
        typer.Option("--entropy-weight", help="How much to spread; auto: as the runs allow."),
    ] = "auto",
    solver: Annotated[str, typer.Option(help="exact or cmaes.")] = "exact",
    pool: Annotated[str, typer.Option(help="own, balance or last.")] = "own",
    phases: Annotated[int, typer.Option(min=1, help="A policy that changes over the run.")] = 1,
    reward: Annotated[str, typer.Option(help="room_left or prediction_gain.")] = "room_left",
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a policy file that taskmix did not write.")
    ] = False,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Learn a better policy from finished runs.

    \b
    taskmix improve runs/small-glue -o policy.yaml
    taskmix run small-glue.yaml --set policy=policy.yaml --out runs/better
    taskmix improve --iterations 2 small-glue.yaml
    """
    from taskmix.studies.improve import ImproveSettings, improve_runs

    settings = ImproveSettings(_weight(weight), solver, pool, phases, reward)
    if iterations:
        _loop(sources, iterations, to, settings, force, data, quiet)
        return
    with _warned():
        path = to or Path("policy.yaml")
        _judgement(improve_runs(sources, path, settings, force))
    out.print(f"Written: {path}", soft_wrap=True)


def _weight(text: str) -> "float | Literal['auto']":
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--entropy-weight: expected a number or auto, found {text!r}") from None


def _loop(
    sources: list[Path],
    iterations: int,
    to: Path | None,
    settings: "ImproveSettings",
    force: bool,
    data: str | None,
    quiet: bool,
) -> None:
    from taskmix import config as configs
    from taskmix.studies.improve import improve_loop
    from taskmix.training.folder import finished

    if len(sources) != 1:
        raise UserError("--iterations: expected one run file, found " + " ".join(map(str, sources)))
    config = configs.load(sources[0], (), data)
    folder = to or Path("studies") / f"{config.name}-improved"
    with showing(quiet) as shower, _warned():
        stages = improve_loop(config, iterations, folder, settings, force, watch=shower.view)
    for stage in stages:
        if stage.learned is not None and not quiet:
            _judgement(stage.learned)
        out.print(f"{stage.folder}: {100 * finished(stage.folder).score:.2f}", soft_wrap=True)


@contextmanager
def _warned() -> Iterator[None]:
    """Says each warning in one sentence."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        print(f"taskmix: {warning.message}", file=sys.stderr)


def _judgement(judged: "PolicyEstimate") -> None:
    """What the journals say of a policy, as a table."""
    table = Table(Column("task", no_wrap=True))
    table.add_column("share before", justify="right")
    table.add_column("share now", justify="right")
    for share in judged.shares:
        table.add_row(share.task, f"{share.before:.4f}", f"{share.now:.4f}")
    out.print(table)
    found = judged.estimate
    interval = "no interval: too few decisions"
    if found.interval is not None:
        interval = f"95% interval {found.interval[0]:.4f} to {found.interval[1]:.4f}"
    learned = "" if judged.entropy_weight is None else ", by draws it was not learned from"
    out.print(
        f"Reward of a step: {judged.earned:.4f} earned, {found.value:.4f} estimated for this "
        f"policy ({interval}){learned}.",
        soft_wrap=True,
    )
    out.print(
        "That is at the states that these runs visited; a training of its own comes to others.",
        soft_wrap=True,
    )
    out.print(
        f"Effective sample size: {found.effective_sample_size:.0f} of {found.decisions} decisions "
        f"({judged.steps} steps).",
        soft_wrap=True,
    )
    if judged.entropy_weight is not None:
        out.print(f"Entropy weight: {judged.entropy_weight:g}.")


@app.command()
def bandit(
    policies: Annotated[str, typer.Option(help="Names with commas between; all if empty.")] = "",
    arms: Annotated[int, typer.Option(help="Tasks.")] = 8,
    steps: Annotated[int, typer.Option(help="Draws in a run.")] = 1000,
    environments: Annotated[int, typer.Option(help="Bandits.")] = 8,
    seeds: Annotated[int, typer.Option(help="Runs of each policy in each bandit.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Another one draws other bandits.")] = 0,
    noise: Annotated[float, typer.Option(help="What luck adds to a loss, as a deviation.")] = 0.0,
    to: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path(
        "studies/bandit"
    ),
) -> None:
    """Compare policies in the synthetic multi-task bandit: no training, some seconds.

    \b
    taskmix bandit --policies exp3s,counterfactual --arms 8 --steps 1000 --environments 8 --seeds 10
    """
    from taskmix.report.bandit import HEAD, POLICIES, bandit_report, rows

    names = [str(name) for name in _list_of(policies, "--policies")] if policies else POLICIES
    with busy("playing"):
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
    table = Table(Column(HEAD[0], no_wrap=True))
    for column in HEAD[1:]:
        table.add_column(column, justify="right")
    for row in rows(report.comparison):
        table.add_row(*row)
    out.print(table)
    for note in report.notes:
        out.print(note, soft_wrap=True)
    out.print(f"Report: {to / 'report.html'}", soft_wrap=True)


@app.command()
def demo(
    to: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(help="Budget of each run.")] = 600,
    quiet: QuietOption = False,
) -> None:
    """Compare three policies on overlaid digits: no download, about a minute.

    Two real handwritten digits lie on top of each other. Three tasks look at the same kind of
    picture: which digit is on the left, which on the right, and which of the two is larger. They
    have very different numbers of examples. Who should get the next batch?
    """
    from taskmix import config as configs

    config = configs.parse(
        {
            "name": "demo",
            "tasks": ["digits/left", "digits/right", "digits/larger"],
            "budget": {"steps": steps, "batch": 32},
            "optimizer": {"lr": 3e-3, "head_factor": 1},
        },
        "demo",
    )
    policies = ["random", "task_size", {"name": "temperature", "temperature": 2}]
    _compare(config, policies, [1], to, quiet)


if __name__ == "__main__":
    main()
