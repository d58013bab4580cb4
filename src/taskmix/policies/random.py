"""The uniform policy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Policy, distribution


class Random(Policy):
    """Draws every task with the same probability.

    The baseline RANDOM of Glover and Hokamp (2019): π(k) = 1/N.

    Args:
        tasks: the names of the tasks.

    >>> from taskmix.rng import stream
    >>> policy = Random(["cola", "rte"])
    >>> policy.probabilities().tolist()
    [0.5, 0.5]
    >>> policy.ask(stream(1, "draws")).probability
    0.5
    """

    name = "random"

    def __init__(self, tasks: Sequence[str]) -> None:
        super().__init__(tasks)
        self._probabilities = distribution(np.ones(len(self.tasks)), "tasks")

    def probabilities(self) -> NDArray[np.float64]:
        """1/N for each task."""
        return self._probabilities
