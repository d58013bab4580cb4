"""Batches: items of one task or of several, as arrays."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.rng import stream
from taskmix.tasks.encoding import MASK
from taskmix.tasks.kinds.base import Array

WINDOW = 64
FROZEN_STATES = "frozen_states"
"""The input that holds the output of an encoder's frozen layers for each token."""

Indices = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class TaskItems:
    """The items of one task in a batch."""

    task: str
    items: Indices
    columns: Any  # targets by name; of a task made in Python, the rest of its collate's output
    rows: slice  # of its sequences or images in the batch's inputs
    length: int = 0  # tokens of its longest sequence; 0 where there is no text
    # The fraction of the task's items in the whole batch, which weighs their mean loss; 0 for an
    # item that only keeps a rank busy.
    share: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Items of one task or of several; iterating gives the items of each task.

    With several ranks, the arrays are those of one rank's part, the numbers those of the whole.
    """

    parts: tuple[TaskItems, ...]
    inputs: dict[str, Any]  # inputs of the encoder by name, the rows of all tasks stacked
    tokens: int = 0  # without padding
    full_sizes: Mapping[str, int] | None = None  # items of each task; None if `parts` has them all
    pieces: tuple["Batch", ...] = ()  # smaller batches that pass the model one by one; or none

    def __iter__(self) -> Iterator[TaskItems]:
        return iter(self.parts)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of items of each task in the whole batch."""
        if self.full_sizes is not None:
            return self.full_sizes
        return {part.task: len(part.items) for part in self.parts}

    @property
    def examples(self) -> int:
        """The number of items in the whole batch."""
        return sum(self.sizes.values())

    @property
    def tasks(self) -> list[str]:
        """The names of the whole batch's tasks, in order."""
        return list(self.sizes)

    @property
    def counts(self) -> bool:
        """Whether any of the items has a weight in the loss."""
        return any(part.share for part in self.parts)

    def with_shares(self, shares: Mapping[str, float]) -> "Batch":
        """Return the batch with other shares of some tasks' items."""
        parts = (replace(part, share=shares.get(part.task, part.share)) for part in self.parts)
        return replace(self, parts=tuple(parts))

    def mapped(self, change: Callable[[Any], Any]) -> "Batch":
        """Return the batch with a function applied to every array, such as a move to a device."""
        parts = (replace(part, columns=map_arrays(part.columns, change)) for part in self.parts)
        pieces = tuple(piece.mapped(change) for piece in self.pieces)
        inputs = map_arrays(self.inputs, change)
        return replace(self, parts=tuple(parts), inputs=inputs, pieces=pieces)


def map_arrays(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every array in nested mappings and sequences."""
    match value:
        case Mapping():
            return {key: map_arrays(item, change) for key, item in value.items()}
        case list() | tuple():
            return [map_arrays(item, change) for item in value]
    return change(value) if hasattr(value, "dtype") else value


class Items(Protocol):
    """The examples of one task: encoded rows, or a data set in Python."""

    def __len__(self) -> int: ...

    def lengths(self) -> Indices:
        """Return the number of tokens of each item, shape `(items,)`; ones without texts."""

    def batch(self, items: Indices) -> tuple[dict[str, Array], Any]:
        """Return the encoder's inputs for these items, and their other columns."""

    @property
    def pads(self) -> Mapping[str, int]:
        """The padding value of each input."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of every batch for one rank: each `ranks`-th item, counted through all tasks.

    So parts differ by one item at most, and items of similar length, which are neighbours, are
    spread evenly. A rank without an item gets the last one, without weight: every rank runs the
    model in every step.

    >>> chosen = {"a": np.array([5, 7, 9]), "b": np.array([2, 4])}
    >>> [Cut(rank, 2).of(chosen) for rank in (0, 1)]
    [{'a': array([5, 9]), 'b': array([4])}, {'a': array([7]), 'b': array([2])}]
    """

    rank: int = 0
    ranks: int = 1

    def places(self, size: int, first: int = 0) -> slice:
        """Return the slice of the part among `size` items, of which the first has this number."""
        return slice((self.rank - first) % self.ranks, size, self.ranks)

    def of(self, chosen: Mapping[str, Indices]) -> dict[str, Indices]:
        """Return the part of these items by task, without tasks that have none in it."""
        parts, first = {}, 0
        for task, items in chosen.items():
            if len(part := items[self.places(len(items), first)]):
                parts[task] = part
            first += len(items)
        return parts


NOT_CUT = Cut()
"""The part of a single process: all items."""


def make_part(items: Mapping[str, Items], chosen: Mapping[str, Indices], cut: Cut) -> Batch:
    """Make one rank's part of a batch."""
    if cut.ranks == 1:
        return make_batch(items, chosen)
    chosen = {task: places for task, places in chosen.items() if len(places)}
    last = next(reversed(chosen))
    part = cut.of(chosen)
    batch = make_batch(items, part or {last: chosen[last][-1:]})
    shares = {task: len(part.get(task, ())) / len(places) for task, places in chosen.items()}
    tokens = sum(int(items[task].lengths()[places].sum()) for task, places in chosen.items())
    return replace(
        batch.with_shares(shares),
        tokens=tokens if MASK in batch.inputs else 0,
        full_sizes={task: len(places) for task, places in chosen.items()},
    )


def make_batch(items: Mapping[str, Items], chosen: Mapping[str, Indices]) -> Batch:
    """Make a batch of some items of one task or of several; a task without any is left out."""
    batches = [
        ready_batch(task, indices, *items[task].batch(indices))
        for task, indices in chosen.items()
        if len(indices)
    ]
    if len(batches) == 1:
        return batches[0]
    starts = np.cumsum([0, *(batch.parts[0].rows.stop for batch in batches)]).tolist()
    parts = (
        replace(batch.parts[0], rows=slice(start, end))
        for batch, start, end in zip(batches, starts, starts[1:], strict=False)
    )
    blocks = [(b.inputs, items[b.parts[0].task].pads, b.parts[0].rows.stop) for b in batches]
    return Batch(tuple(parts), _stacked(blocks), sum(batch.tokens for batch in batches))


def ready_batch(task: str, items: Indices, inputs: dict[str, Any], columns: Any) -> Batch:
    """Make a batch of one task from its inputs and other columns."""
    rows = len(next(iter(inputs.values()))) if inputs else len(items)
    length = inputs[MASK].shape[1] if MASK in inputs else 0
    part = TaskItems(task, items, columns, slice(0, rows), length)
    return Batch((part,), inputs, int(inputs[MASK].sum()) if MASK in inputs else 0)


_Block = tuple[dict[str, Array], Mapping[str, int], int]
"""One task's inputs, their padding values, and the number of rows."""


def _stacked(blocks: Sequence[_Block]) -> dict[str, Array]:
    """Stack inputs of several tasks, padded to the longest sequence.

    An input that some tasks lack is zero there; frozen states are left out unless all have them.
    """
    names = dict.fromkeys(name for inputs, _, _ in blocks for name in inputs)
    if not all(FROZEN_STATES in inputs for inputs, _, _ in blocks):
        names.pop(FROZEN_STATES, None)
    longest = max((inputs[MASK].shape[1] for inputs, _, _ in blocks if MASK in inputs), default=0)
    return {name: _column(name, blocks, longest) for name in names}


def _column(name: str, blocks: Sequence[_Block], longest: int) -> Array:
    inputs = next(inputs for inputs, _, _ in blocks if name in inputs)
    like = inputs[name]
    by_token = MASK in inputs and like.shape[:2] == inputs[MASK].shape
    shape = (longest, *like.shape[2:]) if by_token else like.shape[1:]
    column = np.empty((sum(rows for _, _, rows in blocks), *shape), dtype=like.dtype)
    start = 0
    for inputs, pads, rows in blocks:
        block = column[start : start + rows]
        block[:] = pads.get(name, 0)
        if name in inputs:
            values = inputs[name]
            block[(slice(None), slice(values.shape[1])) if by_token else ...] = values
        start += rows
    return column


class Cursor(ABC, Generic[T]):
    """A place in the batches of one data set, which come epoch after epoch, without end.

    The place is an epoch and a batch in it, and depends only on the number of batches taken.
    `upcoming` makes the next batch without taking it, so that it can be made in the background;
    `advance` takes it. A subclass defines `batches_from`; `where` names the data set in an error.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._epoch = 0
        self._place = 0
        # The iterator over an epoch, and the place of the batch that it gives next.
        self._open: tuple[int, int, Iterator[T]] | None = None

    @abstractmethod
    def batches_from(self, epoch: int, place: int) -> Iterator[T]:
        """Return the batches of an epoch from a place on; the same whenever it is asked."""

    def upcoming(self) -> T:
        epoch, place = self._epoch, self._place
        while True:
            if self._open is None or self._open[:2] != (epoch, place):
                self._open = epoch, place, self.batches_from(epoch, place)
            try:
                batch = next(self._open[2])
            except StopIteration:
                if place == 0:
                    raise UserError(
                        f"{self.where}: expected batches, found none in epoch {epoch}"
                    ) from None
                epoch, place = epoch + 1, 0
            else:
                self._open = epoch, place + 1, self._open[2]
                return batch

    def advance(self) -> None:
        """Take the batch that `upcoming` made."""
        assert self._open is not None
        self._epoch, self._place, _ = self._open

    def next(self) -> T:
        batch = self.upcoming()
        self.advance()
        return batch

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "place": self._place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._place, self._open = state["epoch"], state["place"], None


class Stream(Cursor[Batch]):
    """The training batches of one task."""

    @property
    @abstractmethod
    def per_epoch(self) -> int:
        """The number of batches in an epoch."""


class ItemStream(Stream):
    """Batches cut from items: similar lengths together, each item once an epoch.

    Each epoch is shuffled, sorted by length within windows, cut into batches, and the batches
    shuffled again. The order depends on the seed, the task's name and the epoch, and on nothing
    else: not on which other tasks were drawn in between.
    """

    def __init__(
        self,
        task: str,
        items: Items,
        size: int,
        seed: int,
        tokens: int | None = None,
        cut: Cut = NOT_CUT,
    ) -> None:
        super().__init__(f"task {task}")
        self._tokens = tokens
        self._task = task
        self.items = items
        self._size = min(size, max(1, len(items)))
        self._seed = seed
        self._cut = cut
        self._order: tuple[int, Order] | None = None

    @property
    def per_epoch(self) -> int:
        if self._tokens is None:
            return -(-len(self.items) // self._size)
        return _count(self.items.lengths(), self._tokens)

    def batches_from(self, epoch: int, place: int) -> Iterator[Batch]:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._order_of(epoch)
        for chosen in map(self._order[1].batch, range(place, self.per_epoch)):
            yield make_part({self._task: self.items}, {self._task: chosen}, self._cut)

    def _order_of(self, epoch: int) -> "Order":
        rng = stream(self._seed, "order", self._task, epoch)
        lengths = self.items.lengths()
        if self._tokens is None:
            return bucketed(lengths, self._size, rng)
        return bucketed_by_tokens(lengths, self._tokens, rng)


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The items of an epoch, and the bounds of each of its batches among them."""

    items: Indices
    starts: Indices
    ends: Indices

    def batch(self, place: int) -> Indices:
        return self.items[int(self.starts[place]) : int(self.ends[place])]


def bucketed(lengths: Indices, size: int, rng: np.random.Generator) -> Order:
    """Shuffle, sort by length within windows of 64 batches, cut into batches, shuffle those."""
    items = rng.permutation(len(lengths))
    windows = np.arange(len(items)) // (size * WINDOW)
    items = items[np.lexsort((lengths[items], windows))]
    starts = rng.permutation(np.arange(0, len(items), size))
    return Order(items, starts, np.minimum(starts + size, len(items)))


def bucketed_by_tokens(lengths: Indices, tokens: int, rng: np.random.Generator) -> Order:
    """Do the same, with batches of about `tokens` tokens.

    Every epoch has the same number of batches; one differs from the mean by an item at most.

    >>> order = bucketed_by_tokens(np.array([5, 1, 1, 1, 2]), 5, np.random.default_rng(1))
    >>> sorted(sorted(order.batch(place).tolist()) for place in range(2))
    [[0], [1, 2, 3, 4]]
    """
    count = _count(lengths, tokens)
    items = rng.permutation(len(lengths))
    windows = np.arange(len(items)) * count // (len(items) * WINDOW)
    items = items[np.lexsort((lengths[items], windows))]
    # An item belongs to the batch in which the middle of it lies.
    middles = np.cumsum(lengths[items]) - lengths[items] / 2
    ends = np.searchsorted(middles, np.arange(1, count + 1) * lengths.sum() / count)
    for place in range(1, count):  # no batch is empty, however long some items are
        ends[place] = max(ends[place], ends[place - 1] + 1)
    ends = np.minimum(ends, len(items) - np.arange(count)[::-1])
    order = rng.permutation(count)
    return Order(items, np.concatenate([[0], ends[:-1]])[order], ends[order])


def _count(lengths: Indices, tokens: int) -> int:
    """Return the number of batches of about `tokens` tokens."""
    return max(1, min(len(lengths), round(int(lengths.sum()) / tokens)))


def in_order(task: str, items: Items, size: int, cut: Cut = NOT_CUT) -> Iterator[Batch]:
    """Yield each item once, longest first: for evaluation.

    Ranks take turns, each with whole batches. In the last turn, a rank without a batch gets the
    last one without weight, so that all ranks get equally many.
    """
    order = np.argsort(-items.lengths(), kind="stable")
    starts = range(0, len(order), size)
    for turn in range(0, len(starts), cut.ranks):
        number = turn + cut.rank
        start = starts[min(number, len(starts) - 1)]
        batch = make_batch({task: items}, {task: order[start : start + size]})
        yield batch if number < len(starts) else passed_along(batch)


def passed_along(batch: Batch) -> Batch:
    """Return the batch without weight."""
    return batch.with_shares(dict.fromkeys(batch.tasks, 0.0))
