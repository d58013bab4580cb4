"""Data sets of the hub, and those saved to disk, through the `datasets` library."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.errors import UserError
from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.columns import assemble, metrics_of
from taskmix.tasks.kinds import Kind
from taskmix.tasks.readers.record import FileRecord
from taskmix.tasks.rows import Row, Source
from taskmix.tasks.shapes import Shape, Skip
from taskmix.tasks.sources import READING, LateSource, settled, skipped, unskipped
from taskmix.tasks.task import Task

if TYPE_CHECKING:
    from datasets import Dataset

BATCH = 1024


@dataclass(frozen=True, eq=False)
class HubSource:
    """A split of a `datasets` data set; it lies memory-mapped on disk and is read in batches."""

    dataset: "Dataset"
    where: str
    shape: Shape

    def rows(self) -> Iterator[Row]:
        """Return the rows in order; a split without any is an error."""
        return unskipped(self._items(), self.where)

    def skips(self) -> Mapping[str, int]:
        """Return how many records each documented rule passes over."""
        return skipped(self._items()) if self.shape.skips else {}

    def fingerprint(self) -> str:
        """Names the content of the table and the way it is read."""
        import pyarrow as pa

        digest = blake2b(repr((READING, self.shape)).encode(), digest_size=16)
        for table in self.dataset.with_format("arrow").iter(BATCH):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table.combine_chunks())
            digest.update(sink.getvalue())
        return digest.hexdigest()

    def _items(self) -> Iterator[Row | Skip]:
        shape = settled(self.shape, self._records)
        for record in self._records():
            yield from shape.rows(record)

    def _records(self) -> Iterator[FileRecord]:
        at = 0
        columns = tuple(self.dataset.column_names)
        for table in self.dataset.with_format("arrow").iter(BATCH):
            for values in table.to_pylist():
                at += 1
                yield FileRecord(self.where, at, values, columns)


@dataclass(frozen=True, eq=False)
class HubTable:
    """A data set whose columns a user names."""

    dataset: "Dataset"
    where: str

    def columns(self) -> tuple[str, ...]:
        """Return the names of its columns."""
        return tuple(self.dataset.column_names)

    def label_names(self, column: str) -> tuple[str, ...] | None:
        """Return the names of a column of classes, or of lists of classes."""
        feature: Any = self.dataset.features.get(column)
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return tuple(names) if names else None

    def source(self, shape: Shape) -> HubSource:
        """Its rows in a shape."""
        return HubSource(self.dataset, self.where, shape)


def from_hub(
    name: str,
    *,
    hub: "str | Path | Mapping[str, Dataset]",
    text: str = "",
    label: str = "",
    config: str | None = None,
    revision: str | None = None,
    train: str = "train",
    dev: str | None = "validation",
    test: str | None = None,
    kind: str | type[Kind] | Kind = "classify",
    pair: str | None = None,
    choices: Iterable[str] = (),
    separator: str | None = None,
    id: str | None = None,  # noqa: A002 (the word that a run file uses)
    prompt: str = "",
    answer: str = "",
    labels: Iterable[str | int] | None = None,
    metrics: Iterable[str] | None = None,
    base: Path | None = None,
) -> Task:
    """Return a task from a data set of the hub.

    Args:
        name: how run files, journals and tables call it.
        hub: the data set's name on the hub, the folder that it was saved to, or the loaded
            `DatasetDict` itself.
        text: column of the text; `label`, `pair` and `choices` as for `from_files`.
        label: column of the label; a column of classes gives the labels their names.
        config: which of the data set's configurations.
        revision: which of its revisions; None takes the newest, and a run's own run.yaml names it.
        train: the split to train on, by its name there.
        dev: the split that scores are measured on.
        test: a split to predict.
        kind: the kind of task: a name, a class of one's own, or the trained kind itself, with which
            the data set is looked for when it is read.
        pair: column of the second text.
        choices: columns of the choices.
        separator: what stands between the classes of a text that holds several (multilabel).
        id: column by which predictions name a row.
        prompt: column of what is given (generate).
        answer: column of what is to be said after the prompt (generate).
        labels: the classes in order; None takes the data set's.
        metrics: names of the metrics; None takes the kind's own.
        base: what a relative folder is relative to; None takes the working directory.

    >>> from datasets import Dataset, DatasetDict
    >>> split = Dataset.from_dict({"sentence": ["so good", "so bad"], "y": ["+", "-"]})
    >>> loaded = DatasetDict(train=split, validation=split)
    >>> from_hub("mine", hub=loaded, text="sentence", label="y").kind.labels
    ('+', '-')
    """
    columns = ColumnMap(text, label, pair, tuple(choices), separator, id, prompt, answer)
    splits = {"train": train, "dev": dev, "test": test}
    named = {split: there for split, there in splits.items() if there is not None}

    def made() -> Task:
        loaded, called = hub, f"task {name}"
        if isinstance(hub, (str, Path)):
            loaded, called = _loaded(hub, config, revision, base or Path()), str(hub)
        if not isinstance(loaded, Mapping):
            raise UserError(f"task {name}: hub: expected a name or a folder, found {loaded!r}.")
        tables = {
            split: HubTable(_split(loaded, there, called), f"{called}, split {there}")
            for split, there in named.items()
        }
        return assemble(name, kind, columns, tables, labels, metrics)

    return _late(name, kind, columns, named, made, metrics) if isinstance(kind, Kind) else made()


def _late(
    name: str,
    kind: Kind,
    columns: ColumnMap,
    splits: Iterable[str],
    made: Callable[[], Task],
    metrics: Iterable[str] | None,
) -> Task:
    """Return the task of a trained model, whose data set is loaded when a split is read."""
    shape = type(kind).shape(columns)

    def found(split: str) -> Source:
        return made().split(split)

    sources = {
        split: LateSource(f"task {name}, {split}", shape, partial(found, split)) for split in splits
    }
    return Task(name, kind, sources, metrics_of(name, kind, metrics))


def saved_split(path: Path) -> "Dataset":
    """Return a single split that was saved to disk."""
    found = _from_disk(path)
    if isinstance(found, dict):
        raise UserError(f"{path}: holds several splits; name it as `hub` and its splits beside it.")
    return found


def hub_revision(place: object) -> str | None:
    """Return the newest revision of a data set of the hub; None if it cannot be asked."""
    if not isinstance(place, str) or _is_saved(Path(place)):
        return None
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(place).sha
    except (
        Exception
    ):  # offline, no such name, a hub that is down: loading it will say what is wrong
        return None


def _loaded(
    place: str | Path, config: str | None, revision: str | None, base: Path
) -> Mapping[str, "Dataset"]:
    folder = base / place
    saved = _is_saved(folder)
    found = _from_disk(folder) if saved else _from_hub(str(place), config, revision)
    if not isinstance(found, dict):
        raise UserError(f"{place}: holds a single split; name its folder as `train` or `dev`.")
    return found


def _is_saved(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _from_disk(folder: Path) -> Any:
    datasets = _library(folder)
    try:
        return datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: not a saved data set ({_first_line(error)}).") from None


def _from_hub(place: str, config: str | None, revision: str | None) -> Any:
    datasets = _library(place)
    try:
        return datasets.load_dataset(place, config, revision=revision)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{place}: no such data set on the hub ({_first_line(error)}).") from None


def _library(place: object) -> Any:
    try:
        import datasets
    except ImportError:
        raise UserError(f"{place}: needs datasets; pip install 'taskmix[hub]'.") from None
    return datasets


def _split(loaded: Mapping[str, "Dataset"], there: str, called: str) -> "Dataset":
    if there not in loaded:
        raise UserError(f"{called}: no split {there!r}; splits found: {', '.join(loaded)}.")
    return loaded[there]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
