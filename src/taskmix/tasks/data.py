"""Tasks made in Python: a data set or a loader, a loss and a score."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.rng import seed_for
from taskmix.tasks.batches import (
    WHOLE,
    Batch,
    Cut,
    Indices,
    Stream,
    passed_along,
    ready_batch,
)
from taskmix.tasks.kinds.base import Columns, Kind, Scored
from taskmix.tasks.metrics import Metric
from taskmix.tasks.rows import Row
from taskmix.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.tokenizer import Tokenizer

PROBES = 16
"""Examples that the fingerprint of a data set looks at."""

Loss = Callable[[Any, Any], "Tensor"]
Score = Callable[[Any, Any], float]


class DataSet(Protocol):
    """Examples by number: any data set of torch, a list, a data set of the `datasets` library."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


class BatchLoader(Protocol):
    """Ready batches, the same number in every epoch: torch's `DataLoader`."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


def from_data(
    name: str,
    *,
    train: DataSet | BatchLoader,
    dev: DataSet | BatchLoader,
    loss: Loss,
    score: Score,
    test: DataSet | BatchLoader | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    distribution: Callable[[Any, Any], "Tensor"] | None = None,
) -> Task:
    """Make a task from a data set, a loss and a score; the model is one of your own.

    A batch is what `collate` makes of a list of examples. The model finds it as `part.columns`,
    and what it gives for the part comes back here as `outputs`.

    Args:
        name: how run files, journals and tables call it.
        train: the training examples, or a loader of ready batches.
        dev: the examples, or batches, that scores are measured on.
        loss: from outputs and batch to the mean loss of the batch, a tensor.
        score: from outputs and batch, both as arrays of the whole split, to a number; higher is
            better.
        test: examples to predict.
        collate: from a list of examples to a batch; None takes torch's `default_collate`.
        distribution: from outputs and batch to the predictive distribution of each example, shape
            `(examples, classes)`; only deciders that ask for uncertainties need it.

    >>> import torch
    >>> data = torch.utils.data.TensorDataset(torch.eye(4), torch.arange(4))
    >>> task = from_data(
    ...     "which",
    ...     train=data,
    ...     dev=data,
    ...     loss=lambda outputs, batch: torch.nn.functional.cross_entropy(outputs, batch[1]),
    ...     score=lambda outputs, batch: (outputs.argmax(1) == batch[1]).mean(),
    ... )
    >>> task.split("dev").where
    'task which, dev'
    """
    splits = {"train": train, "dev": dev, "test": test}
    sources = {
        split: PythonSource(f"task {name}, {split}", _items(data, name, split, collate))
        for split, data in splits.items()
        if data is not None
    }
    metric = Metric(_name_of(score), _Scorer(score))
    return Task(name, PythonKind(loss, distribution), sources, (metric,))


def _name_of(score: Score) -> str:
    """Return what tables call a score: its function's name, if it has one."""
    name = getattr(score, "__name__", "<unnamed>")
    return "score" if name.startswith("<") else name


@dataclass(frozen=True)
class _Scorer:
    """A score of one's own as a metric; a class, so that a task can be sent to other processes."""

    score: Score

    def __call__(self, predicted: Any, expected: Any, groups: Any) -> float:
        return float(self.score(predicted, expected))


def _items(
    data: Any, name: str, split: str, collate: Callable[[list[Any]], Any] | None
) -> "Examples | ReadyBatches":
    if not hasattr(data, "__len__"):
        raise UserError(f"task {name}: {split}: expected a data set with a length, found {data!r}")
    if not len(data):
        raise UserError(f"task {name}: {split}: expected at least one example, found none")
    if hasattr(data, "__getitem__"):
        return Examples(data, collate)
    return ReadyBatches(data)


@dataclass(frozen=True, eq=False)
class Examples:
    """The examples of a data set, as batches are made of them."""

    data: DataSet
    collate: Callable[[list[Any]], Any] | None = None
    places: Indices | None = None
    pads: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.data) if self.places is None else len(self.places)

    @property
    def rows(self) -> int:
        """As many as there are examples."""
        return len(self)

    def lengths(self) -> Indices:
        """Return ones: examples are alike."""
        return np.ones(len(self), dtype=np.int64)

    def batch(self, items: Indices) -> tuple[dict[str, Any], Any]:
        """Return no inputs, and what the collate function makes of these examples."""
        places = items if self.places is None else self.places[items]
        return {}, self._collated([self.data[int(place)] for place in places])

    def _collated(self, examples: list[Any]) -> Any:
        if self.collate is not None:
            return self.collate(examples)
        from torch.utils.data import default_collate

        return default_collate(examples)

    def take(self, items: Indices) -> "Examples":
        """Return these examples alone, in this order."""
        return replace(self, places=items if self.places is None else self.places[items])

    def fingerprint(self) -> str:
        """Return what names the data set: its length and some of its examples."""
        digest = blake2b(str(len(self)).encode(), digest_size=16)
        for place in np.unique(np.linspace(0, len(self) - 1, PROBES).astype(np.int64)):
            _, batch = self.batch(np.array([place]))
            digest.update(_bytes(batch))
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ReadyBatches:
    """Batches that a loader gives; their order is the loader's."""

    loader: BatchLoader

    def __len__(self) -> int:
        data = getattr(self.loader, "dataset", None)
        return len(data if data is not None and hasattr(data, "__len__") else self.loader)

    def in_order(self, task: str, cut: Cut = WHOLE) -> Iterator[Batch]:
        """Yield each batch once; ranks take turns, as in `taskmix.tasks.batches.in_order`."""
        start, batch = 0, None
        for number, columns in enumerate(self.loader):
            size = batch_size(columns)
            batch = ready_batch(task, np.arange(start, start + size), {}, columns)
            if number % cut.ranks == cut.rank:
                yield batch
            start += size
        if batch is not None and cut.rank > number % cut.ranks:
            yield passed_along(batch)

    def fingerprint(self) -> str:
        """Return what names the loader: its length."""
        return f"loader of {len(self.loader)} batches"


class LoaderStream(Stream):
    """The batches of a loader, epoch after epoch.

    Torch's random numbers are set by seed, task and epoch while the loader starts an epoch, so that
    a `DataLoader` that shuffles gives the same order again; a resumed run passes over the batches
    that were taken.

    Args:
        task: the task's name.
        batches: what the loader gives.
        seed: the run's seed.
        cut: which part of each batch is wanted.
    """

    def __init__(self, task: str, batches: ReadyBatches, seed: int, cut: Cut = WHOLE) -> None:
        super().__init__()
        self._task = task
        self._loader = batches.loader
        self._seed = seed
        self._cut = cut
        self._open: tuple[int, int, Iterator[Any]] | None = None

    @property
    def per_epoch(self) -> int:
        """Batches in an epoch."""
        return len(self._loader)

    def upcoming(self) -> Batch:
        """Get the next batch from the loader."""
        epoch, place = self._next()
        if self._open is None or self._open[:2] != (epoch, place):
            self._open = epoch, place, self._begun(epoch, place)
        try:
            columns = next(self._open[2])
        except StopIteration:
            raise UserError(
                f"task {self._task}: its loader says {self.per_epoch} batches, found {place}"
            ) from None
        self._open = epoch, place + 1, self._open[2]
        return part_of_ready(self._task, columns, self._cut)

    def _begun(self, epoch: int, place: int) -> Iterator[Any]:
        """Start an epoch, and pass over the batches before a place."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(self._seed, "loader", self._task, epoch))
            batches = iter(self._loader)
            first = [next(batches)]  # a shuffling sampler draws its seed here
        chained = (each for part in (first, batches) for each in part)
        for _ in range(place):
            next(chained)
        return chained


def part_of_ready(task: str, columns: Any, cut: Cut) -> Batch:
    """Return one rank's part of a batch that a loader gave.

    Args:
        task: the task's name.
        columns: the whole batch; the first axis of each of its arrays is the examples.
        cut: which part.
    """
    size = batch_size(columns)
    if cut.ranks == 1:
        return ready_batch(task, np.arange(size), {}, columns)
    own = cut.places(size) if cut.rank < size else slice(size - 1, size)
    items = np.arange(size)[own]
    batch = ready_batch(task, items, {}, _rows(columns, own))
    share = len(items) / size if cut.rank < size else 0.0
    return replace(batch.with_shares({task: share}), whole={task: size})


def _rows(columns: Any, rows: slice) -> Any:
    """Return some examples of a batch, with the nesting that `batch_size` knows."""
    match columns:
        case Mapping():
            return {key: _rows(each, rows) for key, each in columns.items()}
        case list() | tuple() if columns and hasattr(columns[0], "shape"):
            return [_rows(each, rows) for each in columns]
    return columns if getattr(columns, "shape", None) == () else columns[rows]


def batch_size(columns: Any) -> int:
    """Return how many examples a batch holds: the length of its first array."""
    match columns:
        case Mapping():
            return batch_size(next(iter(columns.values())))
        case list() | tuple() if columns and hasattr(columns[0], "shape"):
            return batch_size(columns[0])
    return len(columns)


@dataclass(frozen=True, eq=False)
class PythonSource:
    """A split of a task made in Python."""

    where: str
    items: Examples | ReadyBatches

    def rows(self) -> Iterator[Row]:
        """Yield nothing: the examples are not rows of a file."""
        return iter(())

    def skips(self) -> Mapping[str, int]:
        """Return nothing: no rule passes over examples."""
        return {}

    def fingerprint(self) -> str:
        """Return what names the examples."""
        return self.items.fingerprint()


@dataclass(frozen=True)
class PythonKind(Kind):
    """A kind whose loss and score are functions; its outputs are whatever the model gives."""

    name = "python"
    loss_of: Loss
    distribution_of: Callable[[Any, Any], "Tensor"] | None = None

    @property
    def width(self) -> int:
        """Unknown: the model has its own heads."""
        raise UserError(
            "a task made in Python by from_data brings no head; give the run a model of its own"
        )

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Refuse: there is nothing to encode."""
        raise TypeError(f"{where}: examples made in Python are not encoded")

    def unlabelled(self, split: Any) -> NDArray[np.bool_]:
        """Return False for every example."""
        return np.zeros(len(split), dtype=np.bool_)

    def loss(self, logits: Any, batch: Any) -> "Tensor":
        """Return the task's own loss."""
        return self.loss_of(logits, batch)

    def distribution(self, logits: Any, batch: Any) -> "Tensor":
        """Return the task's own predictive distribution."""
        if self.distribution_of is None:
            raise UserError("uncertainties need from_data(..., distribution=...), found none")
        return self.distribution_of(logits, batch)

    def owners(self, batch: Any) -> "Tensor":
        """Return each example is one decision."""
        import torch

        return torch.arange(batch_size(batch))

    def predictions(self, logits: Any, batch: Any) -> list[Any]:
        """Return for each example its outputs and its columns, as arrays."""
        outputs, columns = _arrays(logits), _arrays(batch)
        return [(_at(outputs, i), _at(columns, i)) for i in range(batch_size(batch))]

    def scored(self, raw: Sequence[Any], split: Any, rows: Iterator[Row]) -> Scored:
        """Put the outputs of all examples together, and their columns."""
        outputs, columns = zip(*raw, strict=True)
        return Scored(_together(outputs), _together(columns))

    def answers(self, raw: Sequence[Any], split: Any, rows: Iterator[Row]) -> list[Any]:
        """Return the outputs for each example."""
        return [np.asarray(outputs).tolist() for outputs, _ in raw]

    def baseline(self, train: Any, split: Any, rows: Iterator[Row]) -> None:
        """Return nothing: what predicting without looking means is not known."""

    def spec(self) -> dict[str, Any]:
        """Return the name alone: functions are not saved."""
        return {"kind": self.name}


def _arrays(value: Any) -> Any:
    match value:
        case Mapping():
            return {key: _arrays(each) for key, each in value.items()}
        case list() | tuple():
            return [_arrays(each) for each in value]
    return value.detach().float().cpu().numpy() if _is_float(value) else np.asarray(value)


def _is_float(value: Any) -> bool:
    return hasattr(value, "detach") and value.is_floating_point()


def _at(value: Any, place: int) -> Any:
    match value:
        case Mapping():
            return {key: _at(each, place) for key, each in value.items()}
        case list():
            return [_at(each, place) for each in value]
    return value[place]


def _together(values: Iterable[Any]) -> Any:
    """Stack the values of single examples, mapping by mapping and list by list."""
    values = list(values)
    match values[0]:
        case Mapping():
            return {key: _together(each[key] for each in values) for key in values[0]}
        case list():
            return [_together(each[i] for each in values) for i in range(len(values[0]))]
    return np.stack(values)


def _bytes(value: Any) -> bytes:
    match value:
        case Mapping():
            return b"".join(str(key).encode() + _bytes(each) for key, each in value.items())
        case list() | tuple():
            return b"".join(_bytes(each) for each in value)
    return np.asarray(value).tobytes() if hasattr(value, "dtype") else repr(value).encode()
