"""Cycle: draws the tasks in turn, by a mixing ratio."""

from collections.abc import Mapping
from typing import Self

import numpy as np

from taskmix.policies.base import Policy, in_order
from taskmix.policies.state import Array
from taskmix.run_info import RunInfo


class Cycle(Policy):
    """Cycles through the tasks, with a fixed number of mini-batches for each.

    The mixing ratio η_1:…:η_N of AutoSeM (Guo, Pasunuru and Bansal 2019, section 3.4): η_i
    mini-batches of task i, then those of the next task. Nothing is random: the next task has the
    probability 1 and the others 0.

    Args:
        ratio: the number of mini-batches of each task in a cycle; 0 excludes a task.

    >>> from taskmix.rng import stream
    >>> policy = Cycle({"mrpc": 2, "rte": 0, "qnli": 1})
    >>> rng = stream(1, "draws")
    >>> [policy.ask(rng).task for _ in range(5)]
    ['mrpc', 'mrpc', 'qnli', 'mrpc', 'mrpc']
    """

    name = "cycle"

    def __init__(self, ratio: Mapping[str, int]) -> None:
        super().__init__(list(ratio))
        counts = list(ratio.values())
        if any(n != int(n) or n < 0 for n in counts) or not any(counts):
            raise ValueError(
                f"ratio: expected whole numbers, none below 0 and not all 0, found {dict(ratio)}"
            )
        self._ends = np.cumsum(counts)
        self._next = -1
        self._probabilities = np.empty(0)

    @classmethod
    def for_run(cls, info: RunInfo, ratio: Mapping[str, int]) -> Self:
        return cls(in_order(ratio, info.tasks, "ratio"))

    def probabilities(self) -> Array:
        task = int(self._ends.searchsorted(self.draws % int(self._ends[-1]), side="right"))
        if task != self._next:
            self._next = task
            self._probabilities = np.zeros(len(self.tasks))
            self._probabilities[task] = 1.0
            self._probabilities.setflags(write=False)
        return self._probabilities

    def _distribution(self) -> Array:
        return self.probabilities()  # always valid

    def _choose(self, probabilities: Array, rng: np.random.Generator) -> int:
        return self._next
