"""Tasks made in Python: a data set or a loader, a loss and a score."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.rng import seed_for
from taskmix.tasks.batches import (
    NOT_CUT,
    Batch,
    Cut,
    Indices,
    Stream,
    map_arrays,
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

HASHED_EXAMPLES = 16
"""Examples that the fingerprint of a data set looks at."""

LossFunction = Callable[[Any, Any], "Tensor"]
ScoreFunction = Callable[[Any, Any], float]


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
    loss: LossFunction,
    score: ScoreFunction,
    test: DataSet | BatchLoader | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    distribution: Callable[[Any, Any], "Tensor"] | None = None,
) -> Task:
    """Make a task from a data set, a loss and a score, for a model of your own.

    `collate` makes a batch from a list of examples. The model gets the batch as `part.columns`; its
    outputs for the part are passed to `loss` and `score` as `outputs`.

    Args:
        name: the task's name in run files, journals and tables.
        train: the training examples, or a loader of ready batches.
        dev: the examples, or batches, on which scores are measured.
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


def _name_of(score: ScoreFunction) -> str:
    """Return the name of a score's function, if it has one."""
    name = getattr(score, "__name__", "<unnamed>")
    return "score" if name.startswith("<") else name


@dataclass(frozen=True)
class _Scorer:
    """A user's score as a metric; a class, so that a task can be sent to other processes."""

    score: ScoreFunction

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
    """The examples of a data set, or some of them."""

    data: DataSet
    collate: Callable[[list[Any]], Any] | None = None
    places: Indices | None = None
    pads: Mapping[str, int] = field(default_factory=dict)
    cut: ClassVar[int] = 0

    def __len__(self) -> int:
        return len(self.data) if self.places is None else len(self.places)

    @property
    def rows(self) -> int:
        return len(self)

    def lengths(self) -> Indices:
        return np.ones(len(self), dtype=np.int64)

    def batch(self, items: Indices) -> tuple[dict[str, Any], Any]:
        from torch.utils.data import default_collate

        places = items if self.places is None else self.places[items]
        collate = self.collate or default_collate
        return {}, collate([self.data[int(place)] for place in places])

    def take(self, items: Indices) -> "Examples":
        return replace(self, places=items if self.places is None else self.places[items])

    def fingerprint(self) -> str:
        digest = blake2b(str(len(self)).encode(), digest_size=16)
        for place in np.unique(np.linspace(0, len(self) - 1, HASHED_EXAMPLES).astype(np.int64)):
            _, batch = self.batch(np.array([place]))
            digest.update(_bytes(batch))
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ReadyBatches:
    """Batches that a loader gives; their order is the loader's."""

    loader: BatchLoader
    cut: ClassVar[int] = 0

    def __len__(self) -> int:
        data = getattr(self.loader, "dataset", None)
        return len(data if data is not None and hasattr(data, "__len__") else self.loader)

    @property
    def rows(self) -> int:
        return len(self)

    def lengths(self) -> Indices:
        return np.ones(len(self), dtype=np.int64)

    def in_order(self, task: str, cut: Cut = NOT_CUT) -> Iterator[Batch]:
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
        return f"loader of {len(self.loader)} batches"


class LoaderStream(Stream):
    """The batches of a loader, epoch after epoch.

    Torch's random numbers are set by seed, task and epoch while the loader starts an epoch, so that
    a `DataLoader` that shuffles gives the same order again; a resumed run passes over the batches
    that were taken.
    """

    def __init__(self, task: str, batches: ReadyBatches, seed: int, cut: Cut = NOT_CUT) -> None:
        super().__init__(f"task {task}")
        self._task = task
        self._loader = batches.loader
        self._seed = seed
        self._cut = cut

    @property
    def per_epoch(self) -> int:
        return len(self._loader)

    def batches_from(self, epoch: int, place: int) -> Iterator[Batch]:
        columns = self._start_epoch(epoch)
        for number in range(self.per_epoch):
            try:
                ready = next(columns)
            except StopIteration:
                raise UserError(
                    f"task {self._task}: its loader says {self.per_epoch} batches, found {number}"
                ) from None
            if number >= place:
                yield part_of_ready(self._task, ready, self._cut)

    def _start_epoch(self, epoch: int) -> Iterator[Any]:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(self._seed, "loader", self._task, epoch))
            batches = iter(self._loader)
            first = list(islice(batches, 1))  # a shuffling sampler draws its seed here
        return chain(first, batches)


def part_of_ready(task: str, columns: Any, cut: Cut) -> Batch:
    """Return one rank's part of a batch; the first axis of each of its arrays is the examples."""
    size = batch_size(columns)
    if cut.ranks == 1:
        return ready_batch(task, np.arange(size), {}, columns)
    rows = cut.places(size) if cut.rank < size else slice(size - 1, size)
    items = np.arange(size)[rows]
    batch = ready_batch(task, items, {}, _rows(columns, rows))
    share = len(items) / size if cut.rank < size else 0.0
    return replace(batch.with_shares({task: share}), full_sizes={task: size})


def _rows(columns: Any, rows: slice) -> Any:
    """Return some examples of a batch, with the nesting that `batch_size` knows."""
    match columns:
        case Mapping():
            return {key: _rows(column, rows) for key, column in columns.items()}
        case list() | tuple() if _holds_columns(columns):
            return [_rows(column, rows) for column in columns]
    return columns if getattr(columns, "shape", None) == () else columns[rows]


def batch_size(columns: Any) -> int:
    """Return the number of examples in a batch: the length of its first column."""
    match columns:
        case Mapping():
            return batch_size(next(iter(columns.values())))
        case list() | tuple() if _holds_columns(columns):
            return batch_size(columns[0])
    return len(columns)


def _holds_columns(values: Sequence[Any]) -> bool:
    """Return whether a list holds the columns of a batch, such as arrays, and not its examples."""
    return any(hasattr(value, "shape") for value in values)


@dataclass(frozen=True, eq=False)
class PythonSource:
    """A split of a task made in Python."""

    where: str
    items: Examples | ReadyBatches

    def rows(self) -> Iterator[Row]:
        return iter(())

    def skips(self) -> Mapping[str, int]:
        return {}

    def fingerprint(self) -> str:
        return self.items.fingerprint()


@dataclass(frozen=True)
class PythonKind(Kind):
    """A kind whose loss and score are functions; its outputs are whatever the model gives."""

    name = "python"
    loss_of: LossFunction
    distribution_of: Callable[[Any, Any], "Tensor"] | None = None

    @property
    def width(self) -> int:
        raise UserError(
            "a task made in Python by from_data brings no head; give the run a model of its own"
        )

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        raise TypeError(f"{where}: examples made in Python are not encoded")

    def unlabelled(self, split: Any) -> NDArray[np.bool_]:
        return np.zeros(len(split), dtype=np.bool_)

    def loss(self, logits: Any, batch: Any) -> "Tensor":
        return self.loss_of(logits, batch)

    def distribution(self, logits: Any, batch: Any) -> "Tensor":
        if self.distribution_of is None:
            raise UserError("uncertainties need from_data(..., distribution=...), found none")
        return self.distribution_of(logits, batch)

    def owners(self, batch: Any) -> "Tensor":
        import torch

        return torch.arange(batch_size(batch))

    def predictions(self, logits: Any, batch: Any) -> list[Any]:
        outputs, columns = _arrays(logits), _arrays(batch)
        return [
            tuple(map_arrays(arrays, itemgetter(example)) for arrays in (outputs, columns))
            for example in range(batch_size(batch))
        ]

    def scored(self, raw: Sequence[Any], split: Any, rows: Iterator[Row]) -> Scored:
        outputs, columns = zip(*raw, strict=True)
        return Scored(_together(outputs), _together(columns))

    def answers(self, raw: Sequence[Any], split: Any, rows: Iterator[Row]) -> list[Any]:
        return [np.asarray(outputs).tolist() for outputs, _ in raw]

    def baseline(self, train: Any, split: Any, rows: Iterator[Row]) -> None: ...

    def spec(self) -> dict[str, Any]:
        return {"kind": self.name}


def _arrays(value: Any) -> Any:
    """Make arrays of tensors and of lists of texts or numbers, in nested mappings and lists."""
    match value:
        case Mapping():
            return {key: _arrays(inner) for key, inner in value.items()}
        case list() | tuple() if value and np.isscalar(value[0]):
            return np.asarray(value)
        case list() | tuple():
            return [_arrays(inner) for inner in value]
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value  # NumPy has no bfloat16
    return np.asarray(value)


def _together(values: Iterable[Any]) -> Any:
    """Stack the values of single examples, mapping by mapping and list by list."""
    values = list(values)
    match values[0]:
        case Mapping():
            return {key: _together(value[key] for value in values) for key in values[0]}
        case list():
            return [_together(value[i] for value in values) for i in range(len(values[0]))]
    return np.stack(values)


def _bytes(value: Any) -> bytes:
    match value:
        case Mapping():
            return b"".join(str(key).encode() + _bytes(inner) for key, inner in value.items())
        case list() | tuple():
            return b"".join(_bytes(inner) for inner in value)
    return np.asarray(value).tobytes() if hasattr(value, "dtype") else repr(value).encode()
