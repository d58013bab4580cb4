"""Progress: more batches for the tasks whose own batches still teach something."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bursar.policies.base import Outcome, Policy, bounded

Array = NDArray[np.float64]
Of = Literal["likelihood", "loss"]
"""What a task's progress is the progress of."""

#: What each line keeps of its past at every draw: some two hundred steps, down to the last alone.
#: Of lines that forecast equally well the first, with the most behind it, is taken.
_KEPT = np.array([0.99, 0.975, 0.95, 0.9, 0.8, 0.5, 0.0])
#: A recent forecast error counts this much, an older one ever less.
_RECENT = 0.2
#: The floors of all tasks together are at most this share of the draws.
_FLOORS = 0.5
#: No batch of a model that learns has a larger loss.
_LARGEST = 50.0


def _gains(points: int) -> tuple[Array, Array]:
    """By how much of its error a line corrects its level and its slope at its n-th point.

    These are the steps of least squares with the weight kept^age: the first column of the inverse
    of the normal matrix, for points at 0, -1, -2 ... Each is of shape `(points, rates)`.
    """
    weights, ages, squares = np.zeros((3, len(_KEPT)))
    found = np.ones((2, points, len(_KEPT)))
    for n in range(points):
        weights, ages, squares = (
            _KEPT * weights + 1,
            _KEPT * (ages + weights),
            _KEPT * (squares + 2 * ages + weights),
        )
        if n > 1:  # two points are on the line, whatever it keeps
            kept = _KEPT > 0  # what keeps nothing goes by the last two
            determinant = (weights * squares - ages**2)[kept]
            found[0, n, kept] = squares[kept] / determinant
            found[1, n, kept] = ages[kept] / determinant
    return found[0], found[1]


_LEVEL_GAINS, _SLOPE_GAINS = _gains(1000)  # they have settled by then


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
    draws gave, at seven rates of forgetting from "the last two" to "the last two hundred". Each
    task goes by the line that has forecast its own batches best of late: a clean curve is followed
    at once, a noisy one is averaged.

    Until two losses of each task are known there is no slope, and the others wait. A loss that
    comes after that of a later draw of its task is left out: it says nothing of the rise since.

    In the bandit of the paper it passes the ORACLE, which knows how many draws each task needs but
    not when a task has had them; with noise in the losses it stays above RANDOM.

    Args:
        tasks: the names of the tasks.
        floor: the least probability of a task; half the uniform one where that is less.
        of: `likelihood`, for tasks that are scored by how often they are right; `loss` counts the
            fall of the loss itself, as a language model is scored.

    >>> from bursar.rng import stream
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
        shape = (len(self.tasks), len(_KEPT))
        self._ones = np.ones(len(self.tasks))  # for sums: a product is the fastest
        self._levels = np.zeros(shape)
        self._slopes = np.zeros(shape)
        self._errors = np.zeros(shape)
        self._seen = np.zeros(len(self.tasks), dtype=np.int64)
        self._newest = np.zeros(len(self.tasks), dtype=np.int64)
        self._new = len(self.tasks)  # how many of them were seen less than twice
        self._best = np.zeros(len(self.tasks))
        self._share()

    def probabilities(self) -> Array:
        """By the roots of the slopes that rise."""
        return self._probabilities

    def tell(self, outcome: Outcome) -> None:
        """Learn from the loss, if it is a number."""
        draw, loss = outcome.draw, bounded(outcome.loss, _LARGEST)
        if loss is None or draw.number <= self._newest[draw.index]:
            return
        self._newest[draw.index] = draw.number
        # A loss below 0 is no likelihood of an outcome; it counts as certain.
        self._observe(draw.index, math.exp(-max(loss, 0.0)) if self._of == "likelihood" else -loss)
        self._share()

    def _observe(self, k: int, value: float) -> None:
        seen = int(self._seen[k])
        levels, slopes, errors = self._levels[k], self._slopes[k], self._errors[k]
        if seen == 0:
            levels[:] = value
        else:
            place = min(seen, len(_LEVEL_GAINS) - 1)
            forecast = levels + slopes
            error = value - forecast
            if seen > 1:
                weight = max(_RECENT, 1 / (seen - 1))
                errors += weight * (error * error - errors)
            levels[:] = forecast + _LEVEL_GAINS[place] * error
            slopes += _SLOPE_GAINS[place] * error
            self._new -= seen == 1
        self._seen[k] += 1
        self._settle(k)

    def _settle(self, k: int) -> None:
        """The task's slope, by the line that erred least."""
        self._best[k] = self._slopes[k, self._errors[k].argmin()]

    def _share(self) -> None:
        floor = self._floor
        if self._new > 0:
            shares: Array = (self._seen < 2) / self._new
        else:
            shares = np.sqrt(np.maximum(self._best, 0.0))
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
        return {"slopes": dict(zip(self.tasks, self._best.tolist(), strict=True))}

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, f"_{name}").tolist() for name in _ARRAYS}

    def _load(self, state: Mapping[str, Any]) -> None:
        for name in _ARRAYS:
            dtype = getattr(self, f"_{name}").dtype
            setattr(self, f"_{name}", np.array(state[name], dtype=dtype))
        self._new = int((self._seen < 2).sum())
        for k in range(len(self.tasks)):
            self._settle(k)
        self._share()


_ARRAYS = ("levels", "slopes", "errors", "seen", "newest")
