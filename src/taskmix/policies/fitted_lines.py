"""How fast each task's values rise, by lines fitted to them as they come."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: What each line keeps of its past at every draw: some two hundred steps, down to the last alone.
#: Of lines that forecast equally well the first, with the most behind it, is taken.
_KEPT = np.array([0.99, 0.975, 0.95, 0.9, 0.8, 0.5, 0.0])
#: A recent forecast error counts this much, an older one ever less.
_RECENT = 0.2


def _gains(points: int) -> tuple[Array, Array]:
    """Return by how much of its error a line corrects its level and its slope at its n-th point.

    These are the steps of least squares with the weight kept^age: the first column of the inverse
    of the normal matrix, for points at 0, -1, -2 ... Each is of shape `(points, rates)`.
    """
    weights, ages, squares = np.zeros((3, len(_KEPT)))  # sums of weight · age to the power 0, 1, 2
    gains = np.ones((2, points, len(_KEPT)))
    kept = _KEPT > 0  # what keeps nothing goes by the last two
    for n in range(points):
        # All points are a draw older, and one of weight 1 and age 0 is new.
        weights, ages, squares = (
            _KEPT * weights + 1,
            _KEPT * (ages + weights),
            _KEPT * (squares + 2 * ages + weights),
        )
        if n > 1:  # two points are on the line, whatever it keeps
            determinant = (weights * squares - ages**2)[kept]
            gains[0, n, kept] = squares[kept] / determinant
            gains[1, n, kept] = ages[kept] / determinant
    return gains[0], gains[1]


_LEVEL_GAINS, _SLOPE_GAINS = _gains(1000)  # they have settled by then


class FittedLines:
    """Follows the values of each task by least squares, at seven rates of forgetting.

    The rates go from "the last two" to "the last two hundred". Each task goes by the line that has
    forecast its own values best of late: a clean curve is followed at once, a noisy one is
    averaged. A value that comes after that of a later draw of its task is left out: it says
    nothing of the rise since.

    Args:
        tasks: how many there are.

    >>> lines = FittedLines(1)
    >>> for number in range(1, 6):
    ...     _ = lines.observe(0, number, 2.0 * number)
    >>> lines.slopes.round(6).tolist()
    [2.0]
    """

    def __init__(self, tasks: int) -> None:
        shape = (tasks, len(_KEPT))
        self._levels = np.zeros(shape)
        self._rises = np.zeros(shape)
        self._errors = np.zeros(shape)
        self._newest = np.zeros(tasks, dtype=np.int64)
        #: How many values of each task were counted, shape `(tasks,)`.
        self.seen = np.zeros(tasks, dtype=np.int64)
        #: The rise from one draw of a task to its next, now, shape `(tasks,)`.
        self.slopes = np.zeros(tasks)

    def observe(self, k: int, number: int, value: float) -> bool:
        """Take in a value of a task, and return whether it was counted.

        Args:
            k: the place of the task.
            number: of the draw that the value came of.
            value: what is to rise.
        """
        if number <= self._newest[k]:
            return False
        self._newest[k] = number
        seen = int(self.seen[k])
        self.seen[k] += 1
        levels, rises, errors = self._levels[k], self._rises[k], self._errors[k]
        if seen == 0:
            levels[:] = value
        else:
            place = min(seen, len(_LEVEL_GAINS) - 1)
            forecast = levels + rises
            error = value - forecast
            if seen > 1:
                weight = max(_RECENT, 1 / (seen - 1))
                errors += weight * (error * error - errors)
            levels[:] = forecast + _LEVEL_GAINS[place] * error
            rises += _SLOPE_GAINS[place] * error
        self._settle(k)
        return True

    def _settle(self, k: int) -> None:
        """Set the task's slope, by the line that erred least."""
        self.slopes[k] = self._rises[k, self._errors[k].argmin()]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that changes over time, as JSON-able values."""
        return {name.removeprefix("_"): getattr(self, name).tolist() for name in _ARRAYS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        for name in _ARRAYS:
            dtype = getattr(self, name).dtype
            setattr(self, name, np.array(state[name.removeprefix("_")], dtype=dtype))
        for k in range(len(self.seen)):
            self._settle(k)


_ARRAYS = ("_levels", "_rises", "_errors", "_newest", "seen")
