"""Lines fitted to the values of each task, whose slopes say how fast the values rise."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from taskmix.policies.state import Array
from taskmix.stateful import Stateful

#: The forgetting factors of `FittedLines`, from about two hundred draws to the last two. Of lines
#: with equal forecast errors the first is used, which averages the most draws.
_DECAYS = np.array([0.99, 0.975, 0.95, 0.9, 0.8, 0.5, 0.0])
#: The weight of the latest forecast error in the running mean of squared errors.
_ERROR_WEIGHT = 0.2
#: The values of a task are stored as at most this many means; then neighbours are averaged.
_MAX_MEANS = 48
#: With fewer means no kinked line is fitted.
_MIN_MEANS = 12
#: Means on each side of a kink, including the one at the kink.
_MIN_SIDE = 3
#: The parameters of a kinked line: a height, two slopes, and the position of the kink.
_PARAMETERS = 4


class _Lines(Stateful):
    """A line for each task; ignores a value that arrives after that of a later draw of its task."""

    def __init__(self, tasks: int) -> None:
        self._newest = np.zeros(tasks, dtype=np.int64)
        self.seen = np.zeros(tasks, dtype=np.int64)  # the number of values
        self.slopes = np.zeros(tasks)  # the present rise from one draw of a task to its next

    def observe(self, k: int, number: int, value: float) -> bool:
        """Add the value of a draw of task `k`, and return whether it was not too late."""
        if number <= self._newest.item(k):
            return False
        self._newest[k] = number
        seen = self.seen.item(k)
        self.seen[k] = seen + 1
        self._add(k, value, seen)
        return True

    def _add(self, k: int, value: float, seen: int) -> None:
        raise NotImplementedError

    def _fit(self, k: int) -> None:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return self._state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._load(state)

    def _derive(self, state: Mapping[str, Any]) -> None:
        for k in range(len(self.seen)):
            self._fit(k)


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


class FittedLines(_Lines):
    """Fits lines by recursive least squares with seven forgetting factors."""

    # The slope of a task is that of the line with the least recent forecast error: a clean curve is
    # followed at once, a noisy one is averaged.

    _saved = ("_levels", "_rises", "_errors", "_newest", "seen")

    def __init__(self, tasks: int) -> None:
        super().__init__(tasks)
        self._levels, self._rises, self._errors = np.zeros((3, tasks, len(_DECAYS)))

    def _add(self, k: int, value: float, seen: int) -> None:
        levels, rises, errors = self._levels[k], self._rises[k], self._errors[k]
        if seen == 0:
            levels[:] = value
        else:
            row = min(seen, len(_LEVEL_GAINS) - 1)
            forecast = levels + rises
            error = value - forecast
            if seen > 1:
                weight = max(_ERROR_WEIGHT, 1 / (seen - 1))
                errors += weight * (error * error - errors)
            levels[:] = forecast + _LEVEL_GAINS[row] * error
            rises += _SLOPE_GAINS[row] * error
        self._fit(k)

    def _fit(self, k: int) -> None:
        self.slopes[k] = self._rises[k, self._errors[k].argmin()]


@cache
def _bases(points: int) -> tuple[Array, Array]:
    """Return orthonormal bases of the lines with each kink, and their slopes after the kink."""
    # The first array, shape `(kinks, 3, points)`, times the values gives the coefficients of the
    # least-squares line; these times the second, shape `(kinks, 3)`, give its slope.
    x = np.arange(points, dtype=float)
    kinks = np.arange(_MIN_SIDE - 1, points - _MIN_SIDE + 1)[:, None]
    after_kink = np.maximum(x - kinks, 0.0)
    columns = [np.ones_like(after_kink), np.broadcast_to(x, after_kink.shape), after_kink]
    basis, triangle = np.linalg.qr(np.stack(columns, axis=2))
    slope = np.linalg.solve(triangle.transpose(0, 2, 1), np.array([[0.0], [1.0], [1.0]]))
    return np.ascontiguousarray(basis.transpose(0, 2, 1)), slope[:, :, 0]


class KinkedLines(_Lines):
    """Fits a line with one kink to all values of each task."""

    # While a task is being learned its values rise along a line; afterwards they rise less. The
    # kinked line with the least squared error shows when that was and the slope since then. As it
    # uses all values, the slope is precise, and the residuals give its standard error. The values
    # are stored as at most 48 means of equally many draws, so a run may have any length.

    _saved = ("_means", "_width", "_sums", "_newest", "seen")

    def __init__(self, tasks: int) -> None:
        super().__init__(tasks)
        self._means: list[list[float]] = [[] for _ in range(tasks)]
        self._width = np.ones(tasks, dtype=np.int64)  # draws in a mean
        self._sums = np.zeros(tasks)  # of the draws since the last mean
        # The errors stay infinite, and the levels minus infinity, while there are too few values.
        self.errors = np.full(tasks, np.inf)  # standard errors of the slopes
        self.levels = np.full(tasks, -np.inf)  # the present heights of the lines
        self.overall = np.zeros(tasks)  # the slopes of straight lines through all values
        self.overall_errors = np.full(tasks, np.inf)  # their standard errors

    def _add(self, k: int, value: float, seen: int) -> None:
        self._sums[k] += value
        if (seen + 1) % self._width.item(k):
            return
        means = self._means[k]
        means.append(float(self._sums[k] / self._width[k]))
        self._sums[k] = 0.0
        if len(means) == _MAX_MEANS:
            pairs = zip(means[::2], means[1::2], strict=True)
            self._means[k] = [(first + second) / 2 for first, second in pairs]
            self._width[k] *= 2
        self._fit(k)

    def _fit(self, k: int) -> None:
        points, width = len(self._means[k]), int(self._width[k])
        if points < _MIN_MEANS:
            return
        means = np.array(self._means[k])
        height = float(means.mean())
        values = means - height  # so that small errors are not rounded away
        basis, slopes = _bases(points)
        coefficients = basis @ values
        explained = np.einsum("kc,kc->k", coefficients, coefficients)
        best = int(explained.argmax())
        residual = max(0.0, float(values @ values - explained[best]))
        noise = math.sqrt(residual / (points - _PARAMETERS))
        slope = slopes[best]
        self.levels[k] = height + float(basis[best, :, -1] @ coefficients[best])
        self.slopes[k] = float(slope @ coefficients[best]) / width
        self.errors[k] = noise * math.sqrt(float(slope @ slope)) / width
        spread = points * (points**2 - 1) / 12
        self.overall[k] = float(np.arange(points) @ values) / spread / width
        self.overall_errors[k] = noise / math.sqrt(spread) / width
