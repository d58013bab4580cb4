"""The order of the batches of one data set."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taskmix.errors import UserError
from taskmix.rng import stream
from taskmix.tasks.batches import Cursor, bucketed


class BatchOrder(Cursor[list[int]]):
    """The batches of one data set, epoch after epoch; a new order implements `epoch_batches`.

    Args:
        task: the name of the data set.
    """

    def __init__(self, task: str) -> None:
        super().__init__(f"data set {task}")
        self.task = task

    @abstractmethod
    def epoch_batches(self, epoch: int) -> Iterator[list[int]]:
        """Yield the items of each batch of an epoch, the same at every call."""

    def batches_from(self, epoch: int, place: int) -> Iterator[list[int]]:
        return islice(self.epoch_batches(epoch), place, None)

    def tell(self, item: int, reward: float | None) -> None:
        """Learn from the mean reward of an item's completions, None if they have no reward."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that a saved place depends on."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # Version 0.1 called the place "taken".
        super().load_state_dict({"place": state.get("taken"), **state})


class ItemOrder(BatchOrder):
    """Full batches of shuffled items of similar length.

    Each epoch leaves out random items that do not fill a batch. A data set that is smaller than a
    batch is one batch.

    Args:
        task: the name of the data set.
        size: the number of its items.
        batch: the number of items in a batch.
        seed: determines the order, together with the name and the epoch.
        lengths: the lengths of the items, shape `(items,)`; None if all are equal.

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
        rng = stream(self._seed, "order", self.task, epoch)
        kept = rng.permutation(self._size)[: self._size - self._size % self._batch]
        order = bucketed(self._lengths[kept], self._batch, rng)
        for place in range(len(order.starts)):
            yield kept[order.batch(place)].tolist()

    def settings(self) -> dict[str, Any]:
        content = np.ascontiguousarray(self._lengths, dtype=np.int64).tobytes()
        return {
            "size": self._size,
            "batch": self._batch,
            "lengths": blake2b(content, digest_size=8).hexdigest(),
        }
