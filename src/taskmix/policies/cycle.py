"""A mixing ratio, in turn."""

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Policy, in_order
from taskmix.run_info import RunInfo


class Cycle(Policy):
    """Gives each task its number of mini-batches in turn, then starts again.

    The mixing ratio η_1:…:η_N of AutoSeM (Guo, Pasunuru and Bansal 2019, section 3.4): η_i
    mini-batches of task i, then those of the next. Nothing is random, so the distribution of a draw
    is one on the next task and zero elsewhere.

    Args:
        ratio: by task, its mini-batches in a turn; zero leaves a task out.

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
        self._at = -1
        self._probabilities = np.empty(0)

    @classmethod
    def for_run(cls, info: RunInfo, ratio: Mapping[str, int]) -> Self:
        """Takes a number of mini-batches for each task of the run."""
        return cls(in_order(ratio, info.tasks, "ratio"))

    def _next(self) -> int:
        place = self.draws % int(self._ends[-1])
        return int(self._ends.searchsorted(place, side="right"))

    def probabilities(self) -> NDArray[np.float64]:
        """Return one for the task whose turn it is."""
        task = self._next()
        if task != self._at:
            self._at = task
            self._probabilities = np.zeros(len(self.tasks))
            self._probabilities[task] = 1.0
            self._probabilities.setflags(write=False)
        return self._probabilities

    def _distribution(self) -> NDArray[np.float64]:
        return self.probabilities()  # a one and zeros: nothing to check at every turn

    def _choose(self, probabilities: NDArray[np.float64], rng: np.random.Generator) -> int:
        return self._at
