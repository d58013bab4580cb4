"""How fast each task's values rise now, by a line with one kink through all of them."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: A task's values are kept as this many means at most; then every two neighbours become one.
_MOST = 48
#: Fewer than this are not fitted.
_FEWEST = 12
#: On either side of the kink there are at least so many, that of the kink itself among them.
_SIDE = 3
#: A kinked line has four parameters: a height, two slopes, and where the kink is.
_PARAMETERS = 4


@cache
def _bases(points: int) -> tuple[Array, Array]:
    """Return an orthonormal basis of the lines with each kink, and the slope behind it.

    The first array, shape `(kinks, 3, points)`, times the values of the points gives the
    coefficients of the line that fits them best; these times the second, shape `(kinks, 3)`, are
    its slope behind the kink.
    """
    places = np.arange(points, dtype=float)
    kinks = np.arange(_SIDE - 1, points - _SIDE + 1)[:, None]
    behind = np.maximum(places - kinks, 0.0)
    columns = [np.ones_like(behind), np.broadcast_to(places, behind.shape), behind]
    basis, corner = np.linalg.qr(np.stack(columns, axis=2))
    slope = np.linalg.solve(corner.transpose(0, 2, 1), np.array([[0.0], [1.0], [1.0]]))
    return np.ascontiguousarray(basis.transpose(0, 2, 1)), slope[:, :, 0]


class KinkedLines:
    """Finds how fast the values of each task rise now, beside how they rose so far.

    A task learns and then has learned: its values rise along a line up to some draw, and less
    steeply from there on. Of all lines with one kink, the one with the least squared error says
    where that was and what the slope has been since. All values count, so that the slope is known
    as well as their noise allows, and the errors of the fit say how well that is.

    The values of a task are kept as the means of equally many draws, 48 at most. So a run may have
    any length, and a slope is looked at again when another mean is full. A value that comes after
    that of a later draw of its task is left out: it says nothing of the rise since.

    Args:
        tasks: how many there are.

    >>> lines = KinkedLines(1)
    >>> for number in range(1, 25):
    ...     _ = lines.observe(0, number, 0.1 * min(number, 18) + 0.01 * max(number - 18, 0))
    >>> lines.slopes.round(6).tolist(), lines.overall.round(3).tolist()
    ([0.01], [0.084])
    """

    def __init__(self, tasks: int) -> None:
        self._means = np.zeros((tasks, _MOST))
        self._points = np.zeros(tasks, dtype=np.int64)
        self._width = np.ones(tasks, dtype=np.int64)  # draws in a mean
        self._sums = np.zeros(tasks)  # of the draws that make no mean yet
        self._newest = np.zeros(tasks, dtype=np.int64)
        #: How many values of each task were counted, shape `(tasks,)`.
        self.seen = np.zeros(tasks, dtype=np.int64)
        #: The rise from one draw of a task to its next since the kink, shape `(tasks,)`.
        self.slopes = np.zeros(tasks)
        #: The standard errors of these slopes; infinite while there are too few values.
        self.errors = np.full(tasks, np.inf)
        #: The height of the line now, shape `(tasks,)`; minus infinity while there are too few.
        self.levels = np.full(tasks, -np.inf)
        #: The same rise over all draws of a task so far, by least squares, shape `(tasks,)`.
        self.overall = np.zeros(tasks)
        #: The standard errors of that; infinite while there are too few values.
        self.overall_errors = np.full(tasks, np.inf)

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
        self.seen[k] += 1
        self._sums[k] += value
        if self.seen[k] % self._width[k]:
            return True
        self._means[k, self._points[k]] = self._sums[k] / self._width[k]
        self._points[k] += 1
        self._sums[k] = 0.0
        if self._points[k] == _MOST:
            half = _MOST // 2
            self._means[k, :half] = self._means[k].reshape(half, 2).mean(axis=1)
            self._points[k] = half
            self._width[k] *= 2
        self._fit(k)
        return True

    def _fit(self, k: int) -> None:
        """Set the task's slopes and their errors, if there is enough for that."""
        points, width = int(self._points[k]), int(self._width[k])
        if points < _FEWEST:
            return
        height = float(self._means[k, :points].mean())
        values = self._means[k, :points] - height  # so that small errors are not rounded away
        basis, slopes = _bases(points)
        found = basis @ values
        fitted = np.einsum("kc,kc->k", found, found)
        best = int(fitted.argmax())
        squares = max(0.0, float(values @ values - fitted[best]))
        noise = math.sqrt(squares / (points - _PARAMETERS))
        slope = slopes[best]
        self.levels[k] = height + float(basis[best, :, -1] @ found[best])
        self.slopes[k] = float(slope @ found[best]) / width
        self.errors[k] = noise * math.sqrt(float(slope @ slope)) / width
        spread = points * (points**2 - 1) / 12
        self.overall[k] = float(np.arange(points) @ values) / spread / width
        self.overall_errors[k] = noise / math.sqrt(spread) / width

    def state_dict(self) -> dict[str, Any]:
        """Return everything that changes over time, as JSON-able values."""
        kept = zip(self._means.tolist(), self._points.tolist(), strict=True)
        return {
            "means": [means[:points] for means, points in kept],
            "width": self._width.tolist(),
            "sums": self._sums.tolist(),
            "newest": self._newest.tolist(),
            "seen": self.seen.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        self._width = np.array(state["width"], dtype=np.int64)
        self._sums = np.array(state["sums"], dtype=float)
        self._newest = np.array(state["newest"], dtype=np.int64)
        self.seen = np.array(state["seen"], dtype=np.int64)
        for k, means in enumerate(state["means"]):
            self._points[k] = len(means)
            self._means[k, : len(means)] = means
            self._fit(k)
