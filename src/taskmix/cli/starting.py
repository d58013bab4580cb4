"""Commands for a start: the demo, a first run file, and lists of what a run file can name."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskmix.cli.base import DataOption, QuietOption, RunFile, Sets, command
from taskmix.cli.running import plan
from taskmix.cli.studies import print_comparison, run_comparison
from taskmix.cli.terminal import out, print_tables
from taskmix.errors import UserError
from taskmix.tables import Column, Table

if TYPE_CHECKING:
    from taskmix.config import TaskEntry


@command()
def demo(
    to: Annotated[Path, typer.Option("--out", help="Folder of the runs.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(help="Budget of each run.")] = 300,
    quiet: QuietOption = False,
) -> None:
    """Compare three policies on overlaid digits, with three seeds: no download, about a minute.

    Two handwritten digits lie on top of each other. Three tasks share such pictures: which digit is
    on the left, which on the right, and which of the two is larger. They have very different
    numbers of examples. Which task should get the next batch?
    """
    from taskmix import config as configs
    from taskmix.config.schema import DEFAULT_POLICY

    config = configs.parse(
        {
            "name": "demo",
            "tasks": ["digits/left", "digits/right", "digits/larger"],
            "budget": {"steps": steps, "batch": 32},
            "optimizer": {"lr": 3e-3, "head_factor": 1},
        },
        "demo",
    )
    policies = ["random", "task_size", DEFAULT_POLICY]
    print_comparison(run_comparison(config, policies, [1, 2, 3], to, quiet), to)
    if not quiet:
        out.print(f"Look at the runs in a browser: taskmix ui {to}", soft_wrap=True)


@command("taskmix init my-data", "taskmix init my-data --out my-data/small.yaml")
def init(
    folder: Annotated[Path, typer.Argument(help="A folder of CSV, TSV, JSONL, Parquet files.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="The run file; default: taskmix.yaml in FOLDER.")
    ] = None,
) -> None:
    """Write a run file for a folder of tables, and show its plan.

    Kinds and columns are guessed from the first rows of each file. A comment gives the reason for
    each guess; correct the file where a guess is wrong.
    """
    from taskmix.config.guess import run_file

    path = to or folder / "taskmix.yaml"
    if path.exists():
        raise UserError(
            f"{path}: expected no such file, found one; remove it, or name another with --out"
        )
    text = run_file(folder, path.parent)
    path.write_text(text, encoding="utf-8")
    out.print(text, markup=False, highlight=False, soft_wrap=True)
    out.print(f"Written to {path}. Its plan:", soft_wrap=True)
    plan(path)
    out.print(f"To train: taskmix run {quote(str(path))}", soft_wrap=True)


@command("taskmix policies")
def policies() -> None:
    """List the policies, selectors and weightings, with their options in a run file."""
    from taskmix.config import decider_tables

    print_tables(decider_tables())


@command("taskmix parameters glue.yaml --set model.conditional.rank=full")
def parameters(file: RunFile, sets: Sets = None) -> None:
    """Count the parameters of a run file's model without loading weights or data."""
    from taskmix import config as configs
    from taskmix.models.parameters import parameters_of

    config = configs.load(file, sets or ())
    spec = config.model
    if any(_kind_of(entry) == "generate" for entry in config.tasks):
        spec = spec.model_copy(update={"causal": True, "encoder": spec.encoder or "small"})
    print_tables([parameters_of(spec, config.task_names).table()])


def _kind_of(entry: "TaskEntry") -> str | None:
    """Return the kind of a run file's task, as far as it is known without reading its data."""
    from taskmix.config import NamedTask
    from taskmix.tasks.catalogue import find

    if not isinstance(entry, NamedTask):
        return entry.kind
    try:
        return find(entry.name).kind.name
    except UserError:  # a task made in Python
        return None


@command("taskmix tasks --data ~/data")
def tasks(
    data: DataOption = None,
    sizes: Annotated[bool, typer.Option(help="Count the rows of the splits.")] = True,
) -> None:
    """List the tasks of the catalogue, and the splits that were found."""
    from taskmix.tasks import catalogue

    root = Path(data) if data else None
    columns = [
        Column(name, left=name != "task") for name in ("task", "kind", "metrics", "found: rows")
    ]
    rows = []
    for entry in _tracked(catalogue.listing(root), "counting rows" if sizes else ""):
        splits = _sizes(entry.name, root) if sizes and entry.found else ", ".join(entry.found)
        rows.append([entry.name, entry.kind, ", ".join(entry.metrics), splits or "-"])
    notes = []
    if any(row[-1] == "-" for row in rows):
        notes.append(
            "Tasks with - need their official files: name their folder with --data or TASKMIX_DATA."
        )
    print_tables([Table(columns, rows, notes=tuple(notes))])


def _tracked(entries: Sequence[Any], title: str) -> Iterator[Any]:
    """Iterate over entries, with a progress bar on a terminal."""
    if not title or not out.is_terminal:
        return iter(entries)
    from rich.progress import track

    return iter(track(entries, title, console=out, transient=True))


def _sizes(name: str, root: Path | None) -> str:
    from taskmix.tasks import catalogue
    from taskmix.tasks.parts import rows_of

    try:
        splits = catalogue.find(name, root).splits
        return ", ".join(f"{split} {rows_of(source):,}" for split, source in splits.items())
    except UserError as error:  # one broken file must not hide the others
        return str(error)
