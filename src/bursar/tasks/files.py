"""A user's own files as a task, by naming columns."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

from bursar.errors import UserError, unknown
from bursar.tasks.column_map import ColumnMap
from bursar.tasks.columns import Table, assemble
from bursar.tasks.hub import HubTable, saved_split
from bursar.tasks.kinds import Kind
from bursar.tasks.readers import Conll, Csv, Jsonl, Mrqa, Parquet, Reader, Squad, Tsv
from bursar.tasks.readers.record import brief
from bursar.tasks.shapes import Shape
from bursar.tasks.sources import FileSource
from bursar.tasks.task import Task

if TYPE_CHECKING:
    from datasets import Dataset

FORMATS: dict[str, Reader] = {
    "csv": Csv(),
    "tsv": Tsv(),
    "jsonl": Jsonl(),
    "parquet": Parquet(),
    "conll": Conll(),
    "squad": Squad(),
    "mrqa": Mrqa(),
}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
}

Where = Union[str, Path, "Dataset"]


@dataclass(frozen=True)
class FileTable:
    """A file of a user's own."""

    path: Path
    reader: Reader

    def columns(self) -> tuple[str, ...]:
        """The names of its columns, by its first record."""
        first = next(self.reader.records(self.path), None)
        return tuple(first.columns or first.values) if first else ()

    def label_names(self, column: str) -> None:
        """A file does not say what its labels are called."""

    def source(self, shape: Shape) -> FileSource:
        """Its rows in a shape."""
        return FileSource(self.path, self.reader, shape)


def from_files(
    name: str,
    *,
    train: Where,
    dev: Where,
    text: str,
    label: str,
    test: Where | None = None,
    kind: str | type[Kind] = "classify",
    pair: str | None = None,
    choices: Iterable[str] = (),
    separator: str | None = None,
    labels: Iterable[str | int] | None = None,
    format: str | None = None,  # noqa: A002 (the word that a run file uses)
    metrics: Iterable[str] | None = None,
    base: Path | None = None,
) -> Task:
    r"""A task from files of one's own.

    Args:
        name: how run files, journals and tables call it.
        train: the training split: a CSV, TSV, JSONL, Parquet or CoNLL file, gzipped or plain, or a
            data set of the `datasets` library, as an object or as the folder it was saved to.
        dev: the split that scores are measured on.
        text: column of the text; of the list of words (tag); of the question (span).
        label: column of the class, number, classes (multilabel), tags (tag), answers (span) or
            position of the right choice (choose).
        test: a split to predict; it may do without the label's column.
        kind: the kind of task: a name, or a class of one's own.
        pair: column of the second text; of the context (span).
        choices: columns of the choices, or the one that holds a list of them (choose).
        separator: what stands between the classes of a text that holds several (multilabel); None
            finds it in the file.
        labels: the classes in order; None takes those of the training split.
        format: the files' format, where their names do not say it.
        metrics: names of the metrics; None takes the kind's own.
        base: what relative paths are relative to; None takes the working directory.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.csv")
    ...     _ = path.write_text("sentence,y\nso good,+\nso bad,-\n")
    ...     task = from_files("mine", train=path, dev=path, text="sentence", label="y")
    >>> task.kind.labels
    ('+', '-')
    """
    places = {"train": train, "dev": dev, "test": test}
    tables = {
        split: _table(name, place, format, base or Path())
        for split, place in places.items()
        if place is not None
    }
    columns = ColumnMap(text, label, pair, tuple(choices), separator)
    return assemble(name, kind, columns, tables, labels, metrics)


def _table(name: str, place: Where, format_name: str | None, base: Path) -> Table:
    if hasattr(place, "column_names"):
        return HubTable(place, f"task {name}")
    if not isinstance(place, (str, Path)):
        raise UserError(f"task {name}: expected a file or a data set, found {brief(place)}.")
    path = base / place
    if path.is_dir():
        return HubTable(saved_split(path), str(path))
    if not path.exists():
        raise UserError(f"task {name}: {path}: no such file.")
    return FileTable(path, _reader(name, path, format_name))


def _reader(name: str, path: Path, format_name: str | None) -> Reader:
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    chosen = format_name or SUFFIXES.get(suffixes[-1].lower() if suffixes else "")
    if chosen is None:
        raise UserError(
            f"task {name}: {path}: its name does not say its format; give format: one of "
            f"{', '.join(FORMATS)}."
        )
    if chosen not in FORMATS:
        raise unknown("format", chosen, FORMATS, f"task {name}")
    return FORMATS[chosen]


def inputs(task: Task, path: Path, format: str | None = None) -> FileSource:  # noqa: A002
    """A file of rows to predict, with the columns of the task's own files and no labels.

    Args:
        task: what is to be predicted.
        path: the file; its name says its format.
        format: the format, where it does not.
    """
    shape = getattr(task.split("dev"), "shape", None)
    if shape is None:
        raise UserError(f"task {task.name}: is not made from tables, so no file can be predicted.")
    if not path.exists():
        raise UserError(f"{path}: no such file.")
    return FileSource(path, _reader(task.name, path, format), shape.without_labels())
