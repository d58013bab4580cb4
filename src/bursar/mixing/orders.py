"""In which order the items of one data set come, batch by batch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bursar.errors import UserError
from bursar.rng import stream
from bursar.tasks.batches import bucketed


class BatchOrder(ABC):
    """The batches of one data set, without end.

    The place in it is an epoch and how many of its batches were taken; it depends on nothing else.
    A new order writes `_epoch_batches`.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._taken = 0
        self._batches: Sequence[list[int]] | None = None

    @abstractmethod
    def _epoch_batches(self, epoch: int) -> Sequence[list[int]]:
        """Return the items of each batch of an epoch; the same whenever it is asked."""

    def next(self) -> list[int]:
        """Return the items of the next batch."""
        if self._batches is None:
            self._batches = self._epoch_batches(self._epoch)
        if self._taken == len(self._batches):
            self._epoch, self._taken = self._epoch + 1, 0
            self._batches = self._epoch_batches(self._epoch)
        self._taken += 1
        return self._batches[self._taken - 1]

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
        super().__init__()
        self._task = task
        self._size = size
        self._batch = min(batch, size)
        self._seed = seed
        self._lengths = np.ones(size, np.int64) if lengths is None else np.asarray(lengths)
        if self._lengths.shape != (size,):
            raise UserError(
                f"lengths, {task}: expected {size}, one for each example, found an array of the "
                f"shape {self._lengths.shape}"
            )

    def _epoch_batches(self, epoch: int) -> Sequence[list[int]]:
        rng = stream(self._seed, "order", self._task, epoch)
        kept = rng.permutation(self._size)[: self._size - self._size % self._batch]
        order = bucketed(self._lengths[kept], self._batch, rng)
        return [kept[order.batch(place)].tolist() for place in range(len(order.starts))]

    def settings(self) -> dict[str, Any]:
        """Return size, batch and a checksum of the lengths."""
        content = np.ascontiguousarray(self._lengths, dtype=np.int64).tobytes()
        return {
            "size": self._size,
            "batch": self._batch,
            "lengths": blake2b(content, digest_size=8).hexdigest(),
        }
