"""A scaling law fitted to the losses of one task, as ADO fits it."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WINDOW, ORDER, STRIDE = 101, 3, 10
"""Losses are smoothed over a window by polynomials of an order, and every tenth is taken."""
HUBER = 1e-3
STARTS = 4
"""So many points of the grid, those with the smallest loss, are improved by L-BFGS."""
LEAST_LOSS = 1e-6
_GRID = np.array(list(product(np.arange(-2.0, 6.0), np.arange(-2.0, 2.0, 0.5), np.arange(8) / 10)))
"""Where the fit starts: a, E and α of each point, shape `(points, 3)`."""


@dataclass(frozen=True)
class Law:
    """L(n) = e^E + e^a n^-α, the loss after n examples.

    Args:
        scale: a.
        irreducible: E.
        exponent: α.
    """

    scale: float
    irreducible: float
    exponent: float


def smoothed(losses: Array) -> Array:
    """Return losses along the first axis without most of their noise (Savitzky and Golay 1964)."""
    from scipy.signal import savgol_filter

    window = min(WINDOW, len(losses) - 1 + len(losses) % 2)
    return np.asarray(savgol_filter(losses, window, ORDER, axis=0), dtype=np.float64)


def fit(examples: Array, losses: Array, least: float) -> Law | None:
    """Return the law of smoothed losses, or None if there is none that is made of numbers.

    The sum of Huber losses of log L, beside penalties for α outside of [0.001, 0.8], a above 6.5
    and E below `least`.

    Args:
        examples: n, shape `(points,)`.
        losses: what was measured there, shape `(points,)`.
        least: what E is pushed above.
    """
    from scipy.optimize import minimize

    steps, logs = np.log(examples), np.log(np.maximum(losses, LEAST_LOSS))
    values = _values(_GRID, steps, logs, least)[0]
    best = None
    for start in _GRID[np.argsort(values, kind="stable")[:STARTS]]:
        found = minimize(
            _objective,
            start,
            (steps, logs, least),
            method="L-BFGS-B",
            jac=True,
            # The loss is of the size of Huber's δ, far below 1, on which SciPy's usual test relies.
            options={"maxiter": 200, "gtol": 1e-5, "ftol": 1e-14},
        )
        if np.isfinite(found.x).all() and (best is None or found.fun < best.fun):
            best = found
    return None if best is None else Law(*(float(each) for each in best.x))


def _objective(point: Array, steps: Array, logs: Array, least: float) -> tuple[float, Array]:
    values, slopes = _values(point[None], steps, logs, least)
    return float(values[0]), slopes[0]


def _values(points: Array, steps: Array, logs: Array, least: float) -> tuple[Array, Array]:
    """Return the loss of the fit and its gradient at each point: a, E and α."""
    a, floor, alpha = (points[:, place, None] for place in range(3))
    falling = a - alpha * steps
    total = np.logaddexp(floor, falling)
    errors = total - logs
    size = np.minimum(np.abs(errors), HUBER)
    value = (size * (np.abs(errors) - size / 2)).sum(1)
    pull = np.clip(errors, -HUBER, HUBER)  # the derivative of Huber's loss
    part = np.exp(falling - total)
    slopes = np.stack(
        [(pull * part).sum(1), (pull * (1 - part)).sum(1), -(pull * part * steps).sum(1)], axis=1
    )
    a, floor, alpha = points.T
    value += np.maximum(alpha - 0.8, 0) - np.minimum(alpha, 0.001)
    value += np.maximum(a - 6.5, 0) + np.maximum(least - floor, 0)
    slopes[:, 0] += a > 6.5
    slopes[:, 1] -= floor < least
    slopes[:, 2] += (alpha > 0.8).astype(float) - (alpha < 0.001)
    return value, slopes
