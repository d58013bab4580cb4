"""Batches: items of one task or of several, as arrays."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream
from taskmix.tasks.encoding import MASK
from taskmix.tasks.kinds.base import Array

WINDOW = 64
FROZEN_STATES = "frozen_states"
"""The input that holds what an encoder's frozen layers gave for each token."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TaskItems:
    """The items of one task in a batch.

    Args:
        task: the task's name.
        items: which ones, shape `(items,)`.
        columns: what only this task's head and loss read: by name, its targets; or, for a task made
            in Python, whatever its collate function gives.
        rows: where its sequences or images stand in the batch's inputs.
        length: tokens of its longest sequence; 0 where there is no text.
        share: how much of the task's items in the whole batch these are: the weight of their mean
            loss in that of the whole batch. 0 for an item that is only passed along.
    """

    task: str
    items: Indices
    columns: Any
    rows: slice
    length: int = 0
    share: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Items of one task or of several; iterating gives the items of each task.

    Where several ranks train together, the arrays are those of one rank's part of the batch, and
    the numbers are those of the whole batch.

    Args:
        parts: the items of each task.
        inputs: by name, what the encoder reads of all of them, one below the other.
        tokens: how many tokens the encoder reads of the whole batch, padding left out.
        whole: by task, how many items the whole batch has; None if these are all of them.
    """

    parts: tuple[TaskItems, ...]
    inputs: dict[str, Any]
    tokens: int = 0
    whole: Mapping[str, int] | None = None

    def __iter__(self) -> Iterator[TaskItems]:
        return iter(self.parts)

    @property
    def sizes(self) -> Mapping[str, int]:
        """By task, how many items the whole batch has."""
        own = {part.task: len(part.items) for part in self.parts}
        return own if self.whole is None else self.whole

    @property
    def examples(self) -> int:
        """How many items the whole batch has."""
        return sum(self.sizes.values())

    @property
    def tasks(self) -> list[str]:
        """The names of the whole batch's tasks, in order."""
        return list(self.sizes)

    @property
    def counts(self) -> bool:
        """Whether any of the items is more than passed along."""
        return any(part.share for part in self.parts)

    def with_shares(self, shares: Mapping[str, float]) -> "Batch":
        """Return the batch with other shares of some tasks' items."""
        parts = (replace(part, share=shares.get(part.task, part.share)) for part in self.parts)
        return replace(self, parts=tuple(parts))

    def mapped(self, change: Callable[[Any], Any]) -> "Batch":
        """Return the batch with every array changed, such as put on a device."""
        parts = (replace(part, columns=_mapped(part.columns, change)) for part in self.parts)
        return replace(self, parts=tuple(parts), inputs=_mapped(self.inputs, change))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested mappings and sequences with every array in them changed."""
    match value:
        case Mapping():
            return {key: _mapped(each, change) for key, each in value.items()}
        case list() | tuple():
            return [_mapped(each, change) for each in value]
    return change(value) if hasattr(value, "dtype") else value


class Items(Protocol):
    """Examples of one task that batches are made of: encoded rows, or a data set in Python."""

    def __len__(self) -> int: ...

    def lengths(self) -> Indices:
        """Return the tokens of each item, shape `(items,)`; ones where there is no text."""

    def batch(self, items: Indices) -> tuple[dict[str, Array], Any]:
        """Return what the encoder reads of these items, and their other columns."""

    @property
    def pads(self) -> Mapping[str, int]:
        """By input, what fills a short row."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of every batch one rank takes: each `ranks`-th item, all tasks counted through.

    So parts differ by one item at most, and items of like lengths, which stand together, are spread
    evenly. A rank for which there is no item passes the last one along, without weight: every rank
    passes something through the model in every step.

    Args:
        rank: whose part it is, from 0.
        ranks: how many there are.

    >>> chosen = {"a": np.array([5, 7, 9]), "b": np.array([2, 4])}
    >>> [Cut(rank, 2).of(chosen) for rank in (0, 1)]
    [{'a': array([5, 9]), 'b': array([4])}, {'a': array([7]), 'b': array([2])}]
    """

    rank: int = 0
    ranks: int = 1

    def places(self, size: int, first: int = 0) -> slice:
        """Return where the part stands among items of which the first has this number."""
        return slice((self.rank - first) % self.ranks, size, self.ranks)

    def of(self, chosen: Mapping[str, Indices]) -> dict[str, Indices]:
        """Return the part of these items of each task, without tasks of which there is none."""
        parts, first = {}, 0
        for task, items in chosen.items():
            if len(part := items[self.places(len(items), first)]):
                parts[task] = part
            first += len(items)
        return parts


WHOLE = Cut()
"""The part of a process that is alone."""


def make_part(items: Mapping[str, Items], chosen: Mapping[str, Indices], cut: Cut) -> Batch:
    """Make one rank's part of a batch.

    Args:
        items: by task, its examples.
        chosen: by task, which of them the whole batch has.
        cut: which part.
    """
    if cut.ranks == 1:
        return make_batch(items, chosen)
    whole = {task: places for task, places in chosen.items() if len(places)}
    last = next(reversed(whole))
    own = cut.of(whole)
    batch = make_batch(items, own or {last: whole[last][-1:]})
    shares = {task: len(own.get(task, ())) / len(whole[task]) for task in whole}
    tokens = sum(int(items[task].lengths()[places].sum()) for task, places in whole.items())
    return replace(
        batch.with_shares(shares),
        tokens=tokens if MASK in batch.inputs else 0,
        whole={task: len(places) for task, places in whole.items()},
    )


def make_batch(items: Mapping[str, Items], chosen: Mapping[str, Indices]) -> Batch:
    """Make a batch of some items of one task or of several.

    Args:
        items: by task, its examples.
        chosen: by task, which of them; a task without any is left out.
    """
    read = {
        task: (places, *items[task].batch(places)) for task, places in chosen.items() if len(places)
    }
    made = [ready_batch(task, *found) for task, found in read.items()]
    if len(made) == 1:
        return made[0]
    starts = np.cumsum([0, *(batch.parts[0].rows.stop for batch in made)]).tolist()
    parts = (
        replace(batch.parts[0], rows=slice(start, end))
        for batch, start, end in zip(made, starts, starts[1:], strict=False)
    )
    blocks = [(b.inputs, items[b.parts[0].task].pads, b.parts[0].rows.stop) for b in made]
    return Batch(tuple(parts), _stacked(blocks), sum(batch.tokens for batch in made))


def ready_batch(task: str, items: Indices, inputs: dict[str, Any], columns: Any) -> Batch:
    """Make a batch of one task from arrays or tensors that are ready.

    Args:
        task: the task's name.
        items: which items they are, shape `(items,)`.
        inputs: by name, what the encoder reads.
        columns: what the task's head and loss read.
    """
    rows = len(next(iter(inputs.values()))) if inputs else len(items)
    length = inputs[MASK].shape[1] if MASK in inputs else 0
    part = TaskItems(task, items, columns, slice(0, rows), length)
    return Batch((part,), inputs, int(inputs[MASK].sum()) if MASK in inputs else 0)


_Block = tuple[dict[str, Array], Mapping[str, int], int]
"""One task's inputs, what pads them, and how many rows they have."""


def _stacked(blocks: Sequence[_Block]) -> dict[str, Array]:
    """Stack inputs of several tasks, each padded to the longest sequence of all.

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
            found = inputs[name]
            block[(slice(None), slice(found.shape[1])) if by_token else ...] = found
        start += rows
    return column


class Stream(ABC):
    """The training batches of one task, without end.

    `upcoming` makes the next batch without taking it, so that it can be made in the background;
    `advance` takes it. The place in the stream is an epoch and a batch in it; it depends on nothing
    but how many batches were taken.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._place = 0

    @property
    @abstractmethod
    def per_epoch(self) -> int:
        """Batches in an epoch."""

    @abstractmethod
    def upcoming(self) -> Batch:
        """Make the next batch."""

    def next(self) -> Batch:
        """Make and take the next batch."""
        batch = self.upcoming()
        self.advance()
        return batch

    def advance(self) -> None:
        """Take the next batch."""
        self._epoch, self._place = self._next()
        self._place += 1

    def _next(self) -> tuple[int, int]:
        """Return epoch and place of the next batch."""
        if self._place == self.per_epoch:
            return self._epoch + 1, 0
        return self._epoch, self._place

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream."""
        return {"epoch": self._epoch, "place": self._place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a place in the stream."""
        self._epoch, self._place = state["epoch"], state["place"]


class ItemStream(Stream):
    """Batches cut from items: like lengths together, each item once an epoch.

    Each epoch is shuffled, sorted by length within windows, cut into batches, and the batches
    shuffled again. The order depends on the seed, the task's name and the epoch, and on nothing
    else: not on which other tasks were drawn in between.

    Args:
        task: the task's name.
        items: its training items.
        size: items in a batch; the last batch of an epoch may have fewer.
        seed: the run's seed.
        tokens: cut batches of about so many tokens instead, whatever number of items that is.
        cut: which part of each batch is made.
    """

    def __init__(
        self,
        task: str,
        items: Items,
        size: int,
        seed: int,
        tokens: int | None = None,
        cut: Cut = WHOLE,
    ) -> None:
        super().__init__()
        self._tokens = tokens
        self._task = task
        self.items = items
        self._size = min(size, max(1, len(items)))
        self._seed = seed
        self._cut = cut
        self._order: tuple[int, Order] | None = None

    @property
    def per_epoch(self) -> int:
        """Batches in an epoch."""
        if self._tokens is None:
            return -(-len(self.items) // self._size)
        return _count(self.items.lengths(), self._tokens)

    def upcoming(self) -> Batch:
        """Make the next batch."""
        epoch, place = self._next()
        if self._order is None or self._order[0] != epoch:
            rng = stream(self._seed, "order", self._task, epoch)
            lengths = self.items.lengths()
            if self._tokens is None:
                self._order = epoch, bucketed(lengths, self._size, rng)
            else:
                self._order = epoch, bucketed_by_tokens(lengths, self._tokens, rng)
        chosen = {self._task: self._order[1].batch(place)}
        return make_part({self._task: self.items}, chosen, self._cut)


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The items of an epoch, and where each of its batches starts and ends among them."""

    items: Indices
    starts: Indices
    ends: Indices

    def batch(self, place: int) -> Indices:
        """Return the items of the batch at this place, shape `(items,)`."""
        return self.items[int(self.starts[place]) : int(self.ends[place])]


def bucketed(lengths: Indices, size: int, rng: np.random.Generator) -> Order:
    """Shuffle, sort by length within windows of 64 batches, cut into batches, shuffle those."""
    items = rng.permutation(len(lengths))
    windows = np.arange(len(items)) // (size * WINDOW)
    items = items[np.lexsort((lengths[items], windows))]
    starts = rng.permutation(np.arange(0, len(items), size))
    return Order(items, starts, np.minimum(starts + size, len(items)))


def bucketed_by_tokens(lengths: Indices, tokens: int, rng: np.random.Generator) -> Order:
    """Do the same, with batches that have about so many tokens each.

    Every epoch has the same number of batches. One differs from the mean by no more than an item.

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
    """Return how many batches of about so many tokens there are."""
    return max(1, min(len(lengths), round(int(lengths.sum()) / tokens)))


def in_order(task: str, items: Items, size: int, cut: Cut = WHOLE) -> Iterator[Batch]:
    """Yield each item once, longest first: for evaluation.

    Ranks take turns, each with whole batches. In the last turn, a rank for which there is none
    passes the last batch along, so that all ranks get equally many.
    """
    order = np.argsort(-items.lengths(), kind="stable")
    starts = range(0, len(order), size)
    for turn in range(0, len(starts), cut.ranks):
        number = turn + cut.rank
        start = starts[min(number, len(starts) - 1)]
        batch = make_batch({task: items}, {task: order[start : start + size]})
        yield batch if number < len(starts) else passed_along(batch)


def passed_along(batch: Batch) -> Batch:
    """Return a batch that goes through the model and counts nothing."""
    return batch.with_shares(dict.fromkeys(batch.tasks, 0.0))
