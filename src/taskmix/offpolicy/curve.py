"""The global maximum of V + λH, where there may be several local ones."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taskmix.policies.state import Array

#: The result is within this of the maximum, in units of λ.
TOLERANCE = 1e-3
#: The approximate ratio of neighbouring initial points.
RATIO = 4.0
#: After this many bisections an interval is shorter than rounding errors.
MAX_ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Points:
    """The curve at several b, in ascending order; all of shape `(points,)`."""

    b: Array  # p·c
    value: Array  # V(p) = p·s / b
    entropy: Array  # H(p)
    tilt: Array  # η, with p_k ∝ exp(s_k / (λ b) - η c_k)

    def merged(self, others: "Points") -> "Points":
        order = np.argsort(np.concatenate([self.b, others.b]), kind="stable")
        columns = zip(vars(self).values(), vars(others).values(), strict=True)
        return Points(*(np.concatenate(column)[order] for column in columns))


class Peak(NamedTuple):
    """The highest point of a curve, with the fields of `Points`."""

    b: float
    value: float
    entropy: float
    tilt: float


class Curve:
    """The curve ψ(b) = max { V(p) + λ H(p) : p·c = b }, and its maximum by branch and bound."""

    # For one b the objective is concave, with the maximum p_k ∝ exp(s_k / (λ b) - η c_k) and the η
    # for which p·c = b. The curve may have several maxima, so intervals of b are bounded. Let
    # q = p / b and t = 1 / b. Then, for any constant h,
    #
    #   V(p) + λ H(p) = q·s + λ b [E(q, t) - t h] + λ h,   E(q, t) = -Σ_k q_k log(q_k / t) = t H(p),
    #
    # and E is jointly concave in q and t. For b from l to r, the factor b is at most r where the
    # bracket is above 0 and at least l where it is below. So the objective is bounded by the larger
    # of two functions, with r and with l in place of b. Both are concave in t, so each is below its
    # tangent at that end. An interval is bisected while its bound exceeds the best point.

    def __init__(self, c: Array, s: Array, entropy_weight: float) -> None:
        self._c = c
        self._s = s
        self._weight = entropy_weight
        self._ends = float(c.min()), float(c.max())
        self._columns = np.stack([np.ones_like(c), c, c**2, s], axis=1)

    def highest(self) -> Peak:
        least, most = self._ends
        count = max(2, int(np.log(most / least) / np.log(RATIO)))
        points = self._at(np.geomspace(least, most, count + 2)[1:-1], np.zeros(count))
        for _ in range(MAX_ROUNDS):
            best = float(self._heights(points).max())
            promising = np.flatnonzero(self._bounds(points) > best + TOLERANCE * self._weight)
            if len(promising) == 0:
                break
            edges = np.concatenate([[least], points.b, [most]])
            middles = np.sqrt(edges[promising] * edges[promising + 1])
            points = points.merged(self._at(middles, np.interp(middles, points.b, points.tilt)))
        place = int(np.argmax(self._heights(points)))
        return Peak(*(float(values[place]) for values in vars(points).values()))

    def _heights(self, points: Points) -> Array:
        heights: Array = points.value + self._weight * points.entropy
        return heights

    def _bounds(self, points: Points) -> Array:
        """Return upper bounds of the curve between points and outside, shape `(points + 1,)`."""
        least, most = self._ends
        height = self._heights(points)
        pull = self._weight * points.tilt * points.b
        # With h = 0 left of each point and h = log N right of it, where the bracket has one sign;
        # and between two points with the mean of their entropies.
        rise = height - pull
        fall = self._weight * np.log(len(self._c)) - rise
        left = points.b / np.append(least, points.b[:-1]) - 1
        right = 1 - points.b / np.append(points.b[1:], most)
        by_right = np.append(height + left * np.maximum(rise, 0.0), np.inf)
        by_left = np.append(np.inf, height + right * np.maximum(fall, 0.0))
        bounds: Array = np.minimum(by_right, by_left)
        level = self._weight * (points.entropy[1:] + points.entropy[:-1]) / 2
        inner = np.maximum(
            height[1:] + left[1:] * np.maximum(rise[1:] - level, 0.0),
            height[:-1] + right[:-1] * np.maximum(level - rise[:-1], 0.0),
        )
        bounds[1:-1] = np.minimum(bounds[1:-1], inner)
        return bounds

    def _at(self, b: Array, tilt: Array) -> Points:
        """Return the curve at these b, by safeguarded Newton steps for η that start at `tilt`."""
        scores = self._s / (self._weight * b[:, None])
        low, high = self._limits(b, np.ptp(scores, axis=1))
        tilt = np.clip(tilt, low, high)
        for _ in range(100):
            log_total, mean, square, reward = self._moments(scores - tilt[:, None] * self._c)
            excess = mean - b
            if np.all((np.abs(excess) <= 1e-6 * b) | (high - low <= 1e-12 * np.abs(tilt))):
                break
            low, high = np.where(excess > 0, tilt, low), np.where(excess > 0, high, tilt)
            newton = tilt + excess / np.maximum(square - mean**2, 1e-300)
            inside = (newton > low) & (newton < high)
            tilt = np.where(inside, newton, (low + high) / 2)
        return Points(b, reward / mean, log_total - reward / (self._weight * b) + tilt * mean, tilt)

    def _moments(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """Return log Σ exp z, p·c, p·c² and p·s with p = softmax(z) for each row; changes `z`."""
        top = z.max(axis=1)
        z -= top[:, None]
        np.exp(z, out=z)
        total, *moments = (z @ self._columns).T
        log_total: Array = top + np.log(total)
        mean, square, reward = (moment / total for moment in moments)
        return log_total, mean, square, reward

    def _limits(self, b: Array, spans: Array) -> tuple[Array, Array]:
        """Return bounds of the η for which p·c = b, with scores that differ by at most `spans`."""
        # Outside these bounds, the tasks on one side of b have almost no weight.
        least, most = self._ends
        below, above = b - least, most - b
        slack = spans + np.log(len(self._c))
        high = np.maximum(slack + np.log(above / below), 1.0) / below
        low = -np.maximum(slack - np.log(above / below), 1.0) / above
        return low, high
