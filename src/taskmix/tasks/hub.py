"""Tasks from the Hugging Face hub, and from data sets saved to disk."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.errors import UserError
from taskmix.tasks.kinds import Kind
from taskmix.tasks.readers.base import FileRecord
from taskmix.tasks.rows import Row
from taskmix.tasks.shapes import ColumnMap, Missing, Shape, Skip
from taskmix.tasks.sources import READER_VERSION, converted, skipped, unskipped
from taskmix.tasks.task import Task, assemble, metrics_of

if TYPE_CHECKING:
    from datasets import Dataset

BATCH = 1024


@dataclass(frozen=True, eq=False)
class HubSource:
    """A split of a `datasets` data set, opened when it is read."""

    where: str
    shape: Shape
    find: "Callable[[], tuple[Dataset, Shape]]"

    @cached_property
    def opened(self) -> "tuple[Dataset, Shape]":
        return self.find()

    def rows(self) -> Iterator[Row]:
        return unskipped(self._items(), self.where)

    def skips(self) -> Mapping[str, int]:
        return skipped(self._items()) if self.opened[1].skips else {}

    def fingerprint(self) -> str:
        import pyarrow as pa

        dataset, shape = self.opened
        digest = blake2b(repr((READER_VERSION, shape)).encode(), digest_size=16)
        for table in dataset.with_format("arrow").iter(BATCH):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table.combine_chunks())
            digest.update(sink.getvalue())
        return digest.hexdigest()

    def _items(self) -> Iterator[Row | Skip]:
        return converted(self.opened[1], self._records)

    def _records(self) -> Iterator[FileRecord]:
        at = 0
        dataset, _ = self.opened
        columns = tuple(dataset.column_names)
        for table in dataset.with_format("arrow").iter(BATCH):
            for values in table.to_pylist():
                at += 1
                yield FileRecord(self.where, at, values, columns)


@dataclass(frozen=True, eq=False)
class HubTable:
    dataset: "Dataset"
    where: str

    def columns(self) -> tuple[str, ...]:
        return tuple(self.dataset.column_names)

    def label_names(self, column: str) -> tuple[str, ...] | None:
        feature: Any = self.dataset.features.get(column)
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return tuple(names) if names else None

    def source(self, shape: Shape) -> HubSource:
        return HubSource(self.where, shape, lambda: (self.dataset, shape))


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
    missing: Missing = "error",
    labels: Iterable[str | int] | None = None,
    metrics: Iterable[str] | None = None,
    base: Path | None = None,
) -> Task:
    """Make a task from a data set of the Hugging Face hub.

    Args:
        name: the task's name in run files, journals and tables.
        hub: the data set's name on the hub, the folder that it was saved to, or a loaded
            `DatasetDict`.
        text: column of the text; this and all other columns are as in `from_files`.
        label: column of the label; a `ClassLabel` column has the names of the classes too.
        config: name of the data set's configuration.
        revision: revision of the data set; None takes the newest, whose hash the run folder keeps.
        train: name of the split to train on.
        dev: name of the split on which scores are measured.
        test: name of a split to predict.
        kind: the kind of task, by its name or class; or the kind of a trained model: its classes
            are known, so the data set is loaded only when its rows are read.
        pair: column of the second text.
        choices: columns of the choices.
        separator: the separator of several classes in one text (multilabel).
        id: column of the ids by which predictions name rows.
        prompt: column of the prompt (generate).
        answer: column of the answer to the prompt (generate).
        missing: "skip" leaves out and counts training and dev rows without a label (classify and
            regress); with "error" they are an error.
        labels: the classes in order; None takes the data set's.
        metrics: names of the metrics; None takes the kind's defaults.
        base: the folder that a relative path starts from; None takes the working directory.

    >>> from datasets import Dataset, DatasetDict
    >>> split = Dataset.from_dict({"sentence": ["so good", "so bad"], "y": ["+", "-"]})
    >>> loaded = DatasetDict(train=split, validation=split)
    >>> from_hub("mine", hub=loaded, text="sentence", label="y").kind.labels
    ('+', '-')
    """
    columns = ColumnMap(text, label, pair, tuple(choices), separator, id, prompt, answer, missing)
    splits = {"train": train, "dev": dev, "test": test}
    names = {split: hub_name for split, hub_name in splits.items() if hub_name is not None}

    def make() -> Task:
        loaded, where = hub, f"task {name}"
        if isinstance(hub, (str, Path)):
            loaded, where = _load(hub, config, revision, base or Path()), str(hub)
        if not isinstance(loaded, Mapping):
            raise UserError(f"task {name}: hub: expected a name or a folder, found {loaded!r}.")
        tables = {
            split: HubTable(_split(loaded, hub_name, where), f"{where}, split {hub_name}")
            for split, hub_name in names.items()
        }
        return assemble(name, kind, columns, tables, labels, metrics)

    if not isinstance(kind, Kind):
        return make()

    def opened(split: str) -> "tuple[Dataset, Shape]":
        source = make().split(split)
        assert isinstance(source, HubSource)
        return source.opened

    # The labels of a trained kind are known, so nothing is loaded before a split is read.
    shape = type(kind).shape(columns)
    sources = {
        split: HubSource(f"task {name}, {split}", shape, partial(opened, split)) for split in names
    }
    return Task(name, kind, sources, metrics_of(name, kind, metrics))


def saved_split(path: Path) -> "Dataset":
    """Return a single split that was saved to disk."""
    dataset = _from_disk(path)
    if isinstance(dataset, dict):
        raise UserError(f"{path}: holds several splits; name it as `hub` and its splits beside it.")
    return dataset


def hub_revision(place: object) -> str | None:
    """Return the newest revision of a data set of the hub; None if the hub does not answer."""
    if not isinstance(place, str) or _is_saved(Path(place)):
        return None
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(place).sha
    except Exception:
        return None  # offline, or no such name: loading the data set raises the error


def _load(
    place: str | Path, config: str | None, revision: str | None, base: Path
) -> Mapping[str, "Dataset"]:
    if _is_saved(base / place):
        splits = _from_disk(base / place)
    else:
        splits = _from_hub(str(place), config, revision)
    if not isinstance(splits, dict):
        raise UserError(f"{place}: holds a single split; name its folder as `train` or `dev`.")
    return splits


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


def _split(splits: Mapping[str, "Dataset"], name: str, where: str) -> "Dataset":
    if name not in splits:
        raise UserError(f"{where}: no split {name!r}; splits found: {', '.join(splits)}.")
    return splits[name]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
