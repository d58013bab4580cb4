"""Distributions over time, as a journal keeps them: written when they change."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Course:
    """The logging policy's distribution at every step, piecewise constant.

    Ten thousand tasks over two hundred thousand steps would be sixteen gigabytes step by step; a
    policy that seldom changes needs a row for each change.

    Args:
        starts: the step from which each row holds, the first one 0, shape `(rows,)`.
        rows: the distributions, shape `(rows, tasks)`.

    >>> course = Course(np.array([0, 3]), np.array([[0.5, 0.5], [0.9, 0.1]]))
    >>> course.mean(steps=4).round(3).tolist()
    [0.6, 0.4]
    """

    starts: NDArray[np.int64]
    rows: NDArray[np.float64]

    def of(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability of the action at each step, shape `(steps,)`."""
        row = np.searchsorted(self.starts, np.arange(len(actions)), side="right") - 1
        chosen: NDArray[np.float64] = self.rows[row, actions]
        return chosen

    def mean(self, steps: int) -> NDArray[np.float64]:
        """Return the mean distribution over the steps, shape `(tasks,)`."""
        lengths = np.diff(np.append(self.starts, steps))
        mean: NDArray[np.float64] = lengths @ self.rows / steps
        return mean

    def always(self) -> NDArray[np.bool_]:
        """Return which tasks could be drawn at every step, shape `(tasks,)`."""
        return np.asarray((self.rows > 0).all(axis=0))
