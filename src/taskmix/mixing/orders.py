"""In which order the items of one data set come, batch by batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taskmix.errors import UserError
from taskmix.rng import stream
from taskmix.tasks.batches import bucketed


class BatchOrder(ABC):
    """The batches of one data set, without end.

    The place in it is an epoch and how many of its batches were taken; it depends on nothing else.
    A new order writes `epoch_batches`.

    Args:
        task: the data set's name.
    """

    def __init__(self, task: str) -> None:
        self.task = task
        self._epoch = 0
        self._taken = 0
        self._batches: Iterator[list[int]] | None = None

    @abstractmethod
    def epoch_batches(self, epoch: int) -> Iterator[list[int]]:
        """Yield the items of each batch of an epoch; the same whenever it is asked."""

    def next(self) -> list[int]:
        """Return the items of the next batch."""
        if self._batches is None:
            self._batches = islice(self.epoch_batches(self._epoch), self._taken, None)
        batch = next(self._batches, None)
        if batch is None:
            if not self._taken:
                raise UserError(f"data set {self.task}: expected batches, found none in an epoch")
            self._epoch, self._taken, self._batches = self._epoch + 1, 0, None
            return self.next()
        self._taken += 1
        return batch

    def settings(self) -> dict[str, Any]:
        """Return what the order depends on beside its place."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the place."""
        return {"epoch": self._epoch, "taken": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a place."""
        self._epoch, self._taken, self._batches = state["epoch"], state["taken"], None


class ItemOrder(BatchOrder):
    """Full batches of shuffled items, like lengths together.

    What does not fill a batch is left out of an epoch: other items each time, drawn before they
    are sorted by length. A data set that is smaller than a batch comes as a whole.

    Args:
        task: its name.
        size: how many items it has.
        batch: items in a batch.
        seed: the order depends on it, the name and the epoch.
        lengths: of each item, shape `(items,)`; None where they do not matter.

    >>> order = ItemOrder("rte", 5, 2, seed=1)
    >>> [order.next() for _ in range(4)]
    [[2, 4], [3, 0], [2, 3], [4, 0]]
    """

    def __init__(
        self, task: str, size: int, batch: int, seed: int, lengths: ArrayLike | None = None
    ) -> None:
        super().__init__(task)
        self._size = size
        self._batch = min(batch, size)
        self._seed = seed
        self._lengths = np.ones(size, np.int64) if lengths is None else np.asarray(lengths)
        if self._lengths.shape != (size,):
            raise UserError(
                f"lengths, {task}: expected {size}, one for each example, found an array of the "
                f"shape {self._lengths.shape}"
            )

    def epoch_batches(self, epoch: int) -> Iterator[list[int]]:
        """Yield the items of each batch of an epoch."""
        rng = stream(self._seed, "order", self.task, epoch)
        kept = rng.permutation(self._size)[: self._size - self._size % self._batch]
        order = bucketed(self._lengths[kept], self._batch, rng)
        for place in range(len(order.starts)):
            yield kept[order.batch(place)].tolist()

    def settings(self) -> dict[str, Any]:
        """Return size, batch and a checksum of the lengths."""
        content = np.ascontiguousarray(self._lengths, dtype=np.int64).tobytes()
        return {
            "size": self._size,
            "batch": self._batch,
            "lengths": blake2b(content, digest_size=8).hexdigest(),
        }
