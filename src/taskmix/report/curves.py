"""Long series made short enough to draw."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: A curve has at most this many points; more than a screen has pixels for.
MOST = 1000


def thinned(count: int, most: int = MOST) -> NDArray[np.int64]:
    """Return which of `count` points to draw: evenly spaced, the first and the last among them.

    >>> thinned(5).tolist(), thinned(9, most=3).tolist()
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).round().astype(np.int64)


def smoothed(values: Floats, window: int) -> Floats:
    """Return the mean over `window` points around each, over fewer at the ends.

    >>> smoothed(np.array([0.0, 3.0, 6.0, 0.0]), window=3).tolist()
    [1.5, 3.0, 3.0, 3.0]
    """
    half = window // 2
    places = np.arange(len(values))
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means: Floats = (sums[high] - sums[low]) / (high - low)
    return means


def held_means(starts: Floats, values: Floats, edges: Floats) -> Floats:
    """Means between edges of what holds from each start until the next.

    Args:
        starts: when a row of values begins to hold, rising, shape `(changes,)`.
        values: shape `(changes, tasks)`.
        edges: from the first start on, rising, shape `(bins + 1,)`.

    >>> held_means(np.array([0.0, 1.0]), np.array([[0.0], [3.0]]), np.array([0.0, 3.0])).tolist()
    [[2.0]]
    """
    lengths = np.diff(np.append(starts, max(edges[-1], starts[-1])))
    areas = np.vstack([np.zeros(values.shape[1]), np.cumsum(values * lengths[:, None], axis=0)])
    corners = np.append(starts, max(edges[-1], starts[-1]))
    at_edges = np.stack([np.interp(edges, corners, column) for column in areas.T], axis=1)
    means: Floats = np.diff(at_edges, axis=0) / np.diff(edges)[:, None]
    return means
