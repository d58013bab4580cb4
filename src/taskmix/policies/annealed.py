"""Annealed sampling: from size-proportional towards uniform sampling."""

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from taskmix.policies.base import Policy, checked_sizes, distribution
from taskmix.policies.state import Array
from taskmix.run_info import RunInfo


class Annealed(Policy):
    """Changes from size-proportional to nearly uniform sampling over the run.

    Annealed sampling (Stickland and Murray 2019): in epoch e of E, p_k ∝ |D_k|^α with
    α = 1 - 0.8 (e - 1) / (E - 1). After the last epoch α stays constant; if E = 1, α = 1.

    Args:
        sizes: the number of training examples of each task.
        epochs: E, the number of epochs.
        steps_per_epoch: the number of draws in an epoch.

    >>> from taskmix.rng import stream
    >>> policy = Annealed({"rte": 1, "sst2": 32}, epochs=2, steps_per_epoch=1)
    >>> policy.probabilities().round(3).tolist()
    [0.03, 0.97]
    >>> draw = policy.ask(stream(1, "draws"))
    >>> policy.probabilities().round(3).tolist()
    [0.333, 0.667]
    """

    name = "annealed"

    def __init__(self, sizes: Mapping[str, int], epochs: int, steps_per_epoch: int = 2400) -> None:
        super().__init__(list(sizes))
        if epochs < 1 or steps_per_epoch < 1:
            raise ValueError(
                "epochs, steps_per_epoch: expected numbers of at least 1,"
                f" found {epochs}, {steps_per_epoch}"
            )
        self._sizes = np.array(list(checked_sizes(sizes).values()), dtype=np.float64)
        self._epochs = epochs
        self._steps_per_epoch = steps_per_epoch
        self._epoch = 0
        self._probabilities = np.empty(0)

    @classmethod
    def for_run(
        cls, info: RunInfo, epochs: int = 25, steps_per_epoch: int | None = None, **options: Any
    ) -> Self:
        if steps_per_epoch is None:
            steps_per_epoch = math.ceil(info.steps / max(1, epochs))
        return cls(info.sizes, epochs, steps_per_epoch, **options)

    @property
    def epoch(self) -> int:
        """The epoch of the next draw, from 1."""
        return min(self.draws // self._steps_per_epoch + 1, self._epochs)

    def probabilities(self) -> Array:
        if self.epoch != self._epoch:
            self._epoch = self.epoch
            exponent = 1 - 0.8 * (self._epoch - 1) / max(1, self._epochs - 1)
            self._probabilities = distribution(self._sizes**exponent, "sizes")
        return self._probabilities
