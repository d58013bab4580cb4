"""The shares of a budget that maximise a sum of curves, one for each task."""

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.state import Array


def allocate(values: Array) -> NDArray[np.int64]:
    """Return how many of `units` equal parts each task gets, shape `(tasks,)`.

    Dynamic programming over the tasks: the global maximum of Σ_k values[k, n_k] with Σ_k n_k =
    units, also where curves begin late and several local maxima exist.

    Args:
        values: the value of a task with each number of parts, shape `(tasks, units + 1)`.

    >>> allocate(np.array([[0.0, 0.5, 0.6], [0.0, 0.0, 0.9]]))
    array([0, 2])
    """
    units = values.shape[1] - 1
    # best[n]: the highest sum of the tasks so far with n parts; chosen: the last task's parts.
    best, chosen = values[0], []
    index = np.arange(units + 1)
    rest = index[:, None] - index  # parts of the earlier tasks, for n parts of which the last has m
    for task in values[1:]:
        sums = np.where(rest >= 0, best[np.maximum(rest, 0)] + task, -np.inf)
        chosen.append(sums.argmax(axis=1))
        best = sums.max(axis=1)
    parts = np.zeros(len(values), dtype=np.int64)
    left = units
    for k in range(len(values) - 1, 0, -1):
        parts[k] = chosen[k - 1][left]
        left -= parts[k]
    parts[0] = left
    return parts
