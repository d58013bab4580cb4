"""Lines fitted to the values of each task, whose slopes say how fast the values rise."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from taskmix.policies.state import Array
from taskmix.stateful import Stateful

#: The forgetting factors of `FittedLines`, from about two hundred draws to the last two. Of lines
#: with equal forecast errors the first is used, which averages the most draws.
_DECAYS = np.array([0.99, 0.975, 0.95, 0.9, 0.8, 0.5, 0.0])
#: The weight of the latest forecast error in the running mean of squared errors.
_ERROR_WEIGHT = 0.2


def _gains(points: int) -> tuple[Array, Array]:
    """Return the gains of recursive least squares, shape `(points, decays)`: level and slope."""
    # With weights decay^age, the gains are the first column of the inverse of the normal matrix for
    # points at 0, -1, -2, ...
    weights, ages, squares = np.zeros((3, len(_DECAYS)))  # sums of weight · age to the power 0 to 2
    gains = np.ones((2, points, len(_DECAYS)))
    kept = _DECAYS > 0  # with a decay of 0, the line goes through the last two points
    for n in range(points):
        # All points get older by 1, and a point with weight 1 and age 0 is added.
        weights, ages, squares = (
            _DECAYS * weights + 1,
            _DECAYS * (ages + weights),
            _DECAYS * (squares + 2 * ages + weights),
        )
        if n > 1:  # with any decay, the line goes through the first two points
            determinant = (weights * squares - ages**2)[kept]
            gains[0, n, kept] = squares[kept] / determinant
            gains[1, n, kept] = ages[kept] / determinant
    return gains[0], gains[1]


_LEVEL_GAINS, _SLOPE_GAINS = _gains(1000)  # converged after so many points


class FittedLines(Stateful):
    """A line for each task, fitted by recursive least squares with seven forgetting factors."""

    # The slope of a task is that of the line with the least recent forecast error: a clean curve is
    # followed at once, a noisy one is averaged.

    _saved = ("_levels", "_rises", "_errors", "_newest", "seen")

    def __init__(self, tasks: int) -> None:
        self._levels, self._rises, self._errors = np.zeros((3, tasks, len(_DECAYS)))
        self._newest = np.zeros(tasks, dtype=np.int64)
        self.seen = np.zeros(tasks, dtype=np.int64)  # the number of values
        self.slopes = np.zeros(tasks)  # the present rise from one draw of a task to its next

    def observe(self, k: int, number: int, value: float) -> bool:
        """Add the value of a draw of task `k`; return False if one of a later draw is known."""
        if number <= self._newest.item(k):
            return False
        self._newest[k] = number
        seen = self.seen.item(k)
        self.seen[k] = seen + 1
        self._add(k, value, seen)
        self._fit(k)
        return True

    def _add(self, k: int, value: float, seen: int) -> None:
        levels, rises, errors = self._levels[k], self._rises[k], self._errors[k]
        if seen == 0:
            levels[:] = value
            return
        row = min(seen, len(_LEVEL_GAINS) - 1)
        forecast = levels + rises
        error = value - forecast
        if seen > 1:
            weight = max(_ERROR_WEIGHT, 1 / (seen - 1))
            errors += weight * (error * error - errors)
        levels[:] = forecast + _LEVEL_GAINS[row] * error
        rises += _SLOPE_GAINS[row] * error

    def _fit(self, k: int) -> None:
        self.slopes[k] = self._rises[k, self._errors[k].argmin()]

    def state_dict(self) -> dict[str, Any]:
        return self._state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._load(state)

    def _derive(self, state: Mapping[str, Any]) -> None:
        for k in range(len(self.seen)):
            self._fit(k)
