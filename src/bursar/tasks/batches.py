"""Batches of one task: like lengths together, each item once an epoch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bursar.rng import stream
from bursar.tasks.encoding import Encoded
from bursar.tasks.kinds.base import Array

WINDOW = 64


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Items of one task, as arrays.

    Args:
        task: whose items these are.
        items: which ones, shape `(items,)`.
        columns: by name, the arrays that the model and the loss take.
    """

    task: str
    items: NDArray[np.int64]
    columns: dict[str, Array]

    @property
    def tokens(self) -> int:
        """How many tokens the model has to read, padding left out."""
        mask = self.columns.get("attention_mask")
        return int(mask.sum()) if mask is not None else 0


class Stream:
    """The training batches of one task, without end.

    Each epoch is shuffled, sorted by length within windows, cut into batches, and the batches
    shuffled again. The order depends on the seed, the task's name and the epoch, and on nothing
    else: not on which other tasks were drawn in between.

    Args:
        task: the task's name.
        split: its training items.
        size: items in a batch; the last batch of an epoch may have fewer.
        seed: the run's seed.
    """

    def __init__(self, task: str, split: Encoded, size: int, seed: int) -> None:
        self.task = task
        self.split = split
        self._size = size
        self._seed = seed
        self._epoch = 0
        self._place = 0
        self._order: Order | None = None

    @property
    def per_epoch(self) -> int:
        """Batches in an epoch."""
        return -(-len(self.split) // self._size)

    def next(self) -> Batch:
        """The next batch."""
        if self._place == self.per_epoch:
            self._epoch, self._place, self._order = self._epoch + 1, 0, None
        if self._order is None:
            rng = stream(self._seed, "order", self.task, self._epoch)
            self._order = bucketed(self.split.lengths(), self._size, rng)
        items = self._order.batch(self._place)
        self._place += 1
        return Batch(self.task, items, self.split.batch(items))

    def state_dict(self) -> dict[str, Any]:
        """The place in the stream."""
        return {"epoch": self._epoch, "place": self._place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place in the stream."""
        self._epoch, self._place, self._order = state["epoch"], state["place"], None


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The items of an epoch in rows of a batch, and the order of the rows."""

    items: NDArray[np.int64]
    starts: NDArray[np.int64]
    size: int

    def batch(self, place: int) -> NDArray[np.int64]:
        """The items of the batch at this place, shape `(at most size,)`."""
        start = int(self.starts[place])
        return self.items[start : start + self.size]


def bucketed(lengths: NDArray[np.int64], size: int, rng: np.random.Generator) -> Order:
    """Shuffle, sort by length within windows of 64 batches, cut into batches, shuffle those."""
    items = rng.permutation(len(lengths))
    windows = np.arange(len(items)) // (size * WINDOW)
    items = items[np.lexsort((lengths[items], windows))]
    starts = rng.permutation(np.arange(0, len(items), size))
    return Order(items, starts, size)


def in_order(task: str, split: Encoded, size: int) -> Iterator[Batch]:
    """Each item once, longest first: for evaluation."""
    items = np.argsort(-split.lengths(), kind="stable")
    for start in range(0, len(items), size):
        chosen = items[start : start + size]
        yield Batch(task, chosen, split.batch(chosen))
