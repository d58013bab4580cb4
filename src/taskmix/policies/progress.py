"""Progress: more batches for the tasks whose own batches still teach something."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import LARGEST_LOSS, Outcome, Policy, bounded
from taskmix.policies.fitted_lines import FittedLines

Array = NDArray[np.float64]
Of = Literal["likelihood", "loss"]
"""What a task's progress is the progress of."""

#: The floors of all tasks together are at most this share of the draws.
_FLOORS = 0.5


class Progress(Policy):
    """Draws tasks by how much a draw of them still raises the likelihood of their batches.

    Glover and Hokamp (2019) want the mean likelihood over tasks to be high when the budget is
    spent. To first order, one more draw of task k adds its slope to that: the rise b_k of its
    likelihood s = exp(-loss) from one draw of it to the next. A task that has converged, or is
    stuck, has none, and its draws are wasted. So

        p_k = floor + (1 - N floor) √max(b_k, 0) / Σ_j √max(b_j, 0).

    Not all goes to the largest, and the root evens shares out further: a slope can only be watched
    by drawing, so a task that noise makes look worse than it is has to stay in view to be seen
    right again. The floor is for tasks that have nothing to learn for now: they forget while others
    are drawn, and may begin to rise. Nothing is measured but the loss of the batches that are
    trained on anyway.

    A batch's loss is noisy, so slopes come from lines fitted by least squares to what a task's
    draws gave (`FittedLines`). Until two losses of each task are known there is no slope, and the
    others wait.

    In the bandit of the paper it passes the ORACLE, which knows how many draws each task needs but
    not when a task has had them; with noise in the losses it stays above RANDOM.

    Args:
        tasks: the names of the tasks.
        floor: the least probability of a task; half the uniform one where that is less.
        of: `likelihood`, for tasks that are scored by how often they are right; `loss` counts the
            fall of the loss itself, as a language model is scored.

    >>> from taskmix.rng import stream
    >>> policy, rng = Progress(["rising", "done"]), stream(1, "draws")
    >>> for step in range(20):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, loss=3 - 0.1 * step if draw.task == "rising" else 0.5))
    >>> policy.probabilities().round(3).tolist()
    [0.99, 0.01]
    """

    name = "progress"

    def __init__(self, tasks: Sequence[str], floor: float = 0.01, of: Of = "likelihood") -> None:
        super().__init__(tasks)
        if not 0 < floor <= 1:
            raise ValueError(f"floor: expected a number above 0 and up to 1, found {floor}")
        if of not in get_args(Of):
            raise ValueError(f"of: expected likelihood or loss, found {of!r}")
        self._of = of
        self._floor = min(floor, _FLOORS / len(self.tasks))
        self._ones = np.ones(len(self.tasks))  # for sums: a product is the fastest
        self._lines = FittedLines(len(self.tasks))
        self._new = len(self.tasks)  # how many of them were seen less than twice
        self._share()

    def probabilities(self) -> Array:
        """By the roots of the slopes that rise."""
        return self._probabilities

    def tell(self, outcome: Outcome) -> None:
        """Learn from the loss, if it is a number."""
        draw, loss = outcome.draw, bounded(outcome.loss, LARGEST_LOSS)
        if loss is None:
            return
        # A loss below 0 is no likelihood of an outcome; it counts as certain.
        value = math.exp(-max(loss, 0.0)) if self._of == "likelihood" else -loss
        if self._lines.observe(draw.index, draw.number, value):
            self._new -= int(self._lines.seen[draw.index]) == 2
            self._share()

    def _share(self) -> None:
        floor = self._floor
        if self._new > 0:
            shares: Array = (self._lines.seen < 2) / self._new
        else:
            shares = np.sqrt(np.maximum(self._lines.slopes, 0.0))
            total = float(shares.dot(self._ones))
            if total > 0:
                shares /= total
            else:
                floor = 1 / len(self._tasks)
        probabilities: Array = floor + (1 - floor * len(self._tasks)) * shares
        probabilities.setflags(write=False)
        self._probabilities = probabilities

    def diagnostics(self) -> dict[str, Any]:
        """Return the slopes by task."""
        return {"slopes": dict(zip(self.tasks, self._lines.slopes.tolist(), strict=True))}

    def _state(self) -> dict[str, Any]:
        return self._lines.state_dict()

    def _load(self, state: Mapping[str, Any]) -> None:
        self._lines.load_state_dict(state)
        self._new = int((self._lines.seen < 2).sum())
        self._share()
