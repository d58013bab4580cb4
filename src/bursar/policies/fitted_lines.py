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
#: Fewer values than this leave no forecast error, and so no idea of the noise.
_FEWEST = 3


def _gains(points: int) -> tuple[Array, Array, Array]:
    """Return by how much of its error a line corrects its level and its slope at its n-th point.

    These are the steps of least squares with the weight kept^age: the first column of the inverse
    of the normal matrix, for points at 0, -1, -2 ... The third array is the variance of the slope
    for each unit of the mean squared error of the next forecast, where the noise of all points is
    alike: the sums of the squared weights of the points in either. Shapes `(points, rates)`.
    """
    weights, ages, squares = np.zeros((3, len(_KEPT)))
    weights2, ages2, squares2 = np.zeros((3, len(_KEPT)))  # the same sums of squared weights
    gains = np.ones((2, points, len(_KEPT)))
    noise = np.full((points, len(_KEPT)), 1 / 3)  # the last two: 2σ² for the slope, 6σ² ahead
    kept = _KEPT > 0  # what keeps nothing goes by the last two
    for n in range(points):
        weights, ages, squares = _aged(_KEPT, weights, ages, squares)
        weights2, ages2, squares2 = _aged(_KEPT**2, weights2, ages2, squares2)
        if n > 1:  # two points are on the line, whatever it keeps
            determinant = (weights * squares - ages**2)[kept]
            gains[0, n, kept] = squares[kept] / determinant
            gains[1, n, kept] = ages[kept] / determinant
            slope = ages**2 * weights2 - 2 * ages * weights * ages2 + weights**2 * squares2
            near, far = squares + ages, ages + weights
            ahead = near**2 * weights2 - 2 * near * far * ages2 + far**2 * squares2
            noise[n, kept] = slope[kept] / (determinant**2 + ahead[kept])
    return gains[0], gains[1], noise


def _aged(kept: Array, weights: Array, ages: Array, squares: Array) -> tuple[Array, Array, Array]:
    """Return the sums of weight, weight · age and weight · age² one point later.

    All points are a draw older by then, and one of weight 1 and age 0 is new.
    """
    return kept * weights + 1, kept * (ages + weights), kept * (squares + 2 * ages + weights)


_LEVEL_GAINS, _SLOPE_GAINS, _SLOPE_NOISE = _gains(1000)  # they have settled by then


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
    >>> lines.slopes.round(6).tolist(), lines.overall.round(6).tolist()
    ([2.0], [2.0])
    """

    def __init__(self, tasks: int) -> None:
        shape = (tasks, len(_KEPT))
        self._levels = np.zeros(shape)
        self._rises = np.zeros(shape)
        self._errors = np.zeros(shape)
        self._newest = np.zeros(tasks, dtype=np.int64)
        self._heights = np.zeros(tasks)
        #: How many values of each task were counted, shape `(tasks,)`.
        self.seen = np.zeros(tasks, dtype=np.int64)
        #: The rise from one draw of a task to its next, now, shape `(tasks,)`.
        self.slopes = np.zeros(tasks)
        #: The variance of these slopes, by the errors of the forecasts; infinite while unknown.
        self.variances = np.full(tasks, np.inf)
        #: The same rise over all draws of a task so far, by least squares, shape `(tasks,)`.
        self.overall = np.zeros(tasks)
        #: The variance of that, by the errors of the same forecasts; infinite while unknown.
        self.overall_variances = np.full(tasks, np.inf)

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
            self._heights[k] = value
        else:
            place = min(seen, len(_LEVEL_GAINS) - 1)
            forecast = levels + rises
            error = value - forecast
            if seen > 1:
                weight = max(_RECENT, 1 / (seen - 1))
                errors += weight * (error * error - errors)
            levels[:] = forecast + _LEVEL_GAINS[place] * error
            rises += _SLOPE_GAINS[place] * error
            self._follow(k, seen + 1, value)
        self._settle(k)
        return True

    def _follow(self, k: int, points: int, value: float) -> None:
        """Correct the line over all points, which forgets nothing."""
        forecast = self._heights[k] + self.overall[k]
        error = value - forecast
        both = points * (points + 1)
        self._heights[k] = forecast + (4 * points - 2) / both * error
        self.overall[k] += 6 / both * error

    def _settle(self, k: int) -> None:
        """Set the task's slope and both variances, by the line that erred least."""
        best, seen = self._errors[k].argmin(), int(self.seen[k])
        self.slopes[k] = self._rises[k, best]
        if seen >= _FEWEST:
            error = self._errors[k, best]
            place = min(seen, len(_SLOPE_NOISE)) - 1
            self.variances[k] = error * _SLOPE_NOISE[place, best]
            # A forecast errs by no less than the noise of a value, so that this is no less either.
            self.overall_variances[k] = 12 * error / (seen * (seen**2 - 1))

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


_ARRAYS = ("_levels", "_rises", "_errors", "_newest", "_heights", "seen", "overall")
