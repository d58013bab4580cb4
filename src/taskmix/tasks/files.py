"""Tasks from a user's files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from taskmix.errors import UserError, unknown
from taskmix.tasks.hub import HubTable, saved_split
from taskmix.tasks.kinds import Kind
from taskmix.tasks.readers import Conll, Csv, Jsonl, Mrqa, Parquet, Reader, Squad, Tsv
from taskmix.tasks.readers.base import brief
from taskmix.tasks.rows import Source
from taskmix.tasks.shapes import ColumnMap, Missing, Shape
from taskmix.tasks.sources import FileSource, MemorySource
from taskmix.tasks.task import DataTable, Task, assemble

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
    path: Path
    reader: Reader

    def columns(self) -> tuple[str, ...]:
        first = next(self.reader.records(self.path), None)
        return tuple(first.columns or first.values) if first else ()

    def label_names(self, column: str) -> None:
        return None

    def source(self, shape: Shape) -> FileSource:
        return FileSource(self.path, self.reader, shape)


def from_files(
    name: str,
    *,
    train: Where,
    text: str = "",
    label: str = "",
    dev: Where | None = None,
    test: Where | None = None,
    kind: str | type[Kind] | Kind = "classify",
    pair: str | None = None,
    choices: Iterable[str] = (),
    separator: str | None = None,
    id: str | None = None,  # noqa: A002 (the word that a run file uses)
    prompt: str = "",
    answer: str = "",
    missing: Missing = "error",
    labels: Iterable[str | int] | None = None,
    format: str | None = None,  # noqa: A002 (the word that a run file uses)
    metrics: Iterable[str] | None = None,
    base: Path | None = None,
) -> Task:
    r"""Make a task from files.

    Args:
        name: the task's name in run files, journals and tables.
        train: the training split: a CSV, TSV, JSONL, Parquet or CoNLL file, gzipped or plain, or a
            data set of the `datasets` library, as an object or as the folder it was saved to.
        text: column of the text, of the list of words (tag) or of the question (span). Every kind
            but generate needs `text` and `label`.
        label: column of the class, number, classes (multilabel), tags (tag), answers (span) or
            index of the right choice (choose).
        dev: the split on which scores are measured; training needs one.
        test: a split to predict; it may lack the column `label`.
        kind: the kind of task, by its name or class; or the kind of a trained model: its classes
            are known, so the files are opened only when their rows are read.
        pair: column of the second text, or of the context (span).
        choices: columns of the choices, or the one column of lists of choices (choose).
        separator: the separator of several classes in one text (multilabel); None finds it in the
            file.
        id: column of the ids by which predictions name rows.
        prompt: column of the prompt (generate); without it, `text` is learned as a whole.
        answer: column of the answer to the prompt (generate).
        missing: "skip" leaves out and counts training and dev rows without a label (classify and
            regress); with "error" they are an error.
        labels: the classes in order; None takes those of the training split.
        format: the files' format, if their suffixes do not tell.
        metrics: names of the metrics; None takes the kind's defaults.
        base: the folder that relative paths start from; None takes the working directory.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.csv")
    ...     _ = path.write_text("sentence,y\nso good,+\nso bad,-\n")
    ...     task = from_files("mine", train=path, dev=path, text="sentence", label="y")
    >>> task.kind.labels
    ('+', '-')
    """
    places = {"train": train, "dev": dev, "test": test}
    if train is None:
        raise UserError(f"task {name}: train: expected a file or a data set, found none.")
    tables = {
        split: _table(name, place, format, base or Path())
        for split, place in places.items()
        if place is not None
    }
    columns = ColumnMap(text, label, pair, tuple(choices), separator, id, prompt, answer, missing)
    return assemble(name, kind, columns, tables, labels, metrics)


def _table(name: str, place: Where, format_name: str | None, base: Path) -> DataTable:
    if hasattr(place, "column_names"):
        return HubTable(place, f"task {name}")
    if not isinstance(place, (str, Path)):
        raise UserError(f"task {name}: expected a file or a data set, found {brief(place)}.")
    path = base / place
    if path.is_dir():
        return HubTable(saved_split(path), str(path))
    if not path.exists() and format_name is None and _suffix(path) not in SUFFIXES:
        return FileTable(path, Jsonl())  # reading it raises the error that the file is missing
    return FileTable(path, _reader(path, format_name, f"task {name}", "format:"))


def _reader(path: Path, format_name: str | None, where: str, option: str) -> Reader:
    """Return the reader of a file, by its format's name or its suffix."""
    chosen = format_name or SUFFIXES.get(_suffix(path))
    if chosen is None:
        raise UserError(
            f"{where}: {path}: its name does not say its format; give {option} one of "
            f"{', '.join(FORMATS)}."
        )
    if chosen not in FORMATS:
        raise unknown("format", chosen, FORMATS, where)
    return FORMATS[chosen]


def _suffix(path: Path) -> str:
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    return suffixes[-1].lower() if suffixes else ""


def inputs(
    task: Task,
    rows: Path | Sequence[Mapping[str, Any]],
    format: str | None = None,  # noqa: A002
) -> Source:
    """Return rows to predict, which have the columns of the task's files, but no labels.

    Args:
        task: the task.
        rows: a file, or the rows themselves.
        format: of the file. Without it, the suffix tells the format: that of a file of the task, or
            a usual one.
    """
    shape = getattr(next(iter(task.splits.values())), "shape", None)
    if shape is None:
        raise UserError(f"task {task.name}: is not made from tables, so no file can be predicted.")
    if not isinstance(rows, Path):
        return MemorySource(rows, shape.without_labels())
    path = rows
    if not path.exists():
        raise UserError(f"{path}: no such file.")
    for source in task.splits.values() if format is None else ():
        reader = getattr(source, "reader", None)
        if reader is not None and _suffix(Path(source.where)) == _suffix(path):
            shape = getattr(source, "shape", None) or shape
            return FileSource(path, reader, shape.without_labels())
    reader = _reader(path, format, f"task {task.name}", "--input-format, in Python format=,")
    return FileSource(path, reader, shape.without_labels())
