"""Where the highest of several maxima of V + λH lies."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: No distribution is better than the point found by more than this, in units of λ.
TOLERANCE = 1e-3
#: The first points stand in about this ratio.
RATIO = 4.0
#: Halved so often, a piece is shorter than rounding.
ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Points:
    """The curve at several b, in order; all of shape `(points,)`.

    Args:
        b: p·c.
        value: V(p) = p·s / b.
        entropy: H(p).
        tilt: η, with p_k ∝ exp(s_k / (λ b) - η c_k).
    """

    b: Floats
    value: Floats
    entropy: Floats
    tilt: Floats

    def and_also(self, others: "Points") -> "Points":
        """Both, in order."""
        order = np.argsort(np.concatenate([self.b, others.b]), kind="stable")
        return Points(
            *(
                np.concatenate([mine, theirs])[order]
                for mine, theirs in zip(vars(self).values(), vars(others).values(), strict=True)
            )
        )


class Peak(NamedTuple):
    """The highest point of a curve: p·c, V(p), H(p) and the tilt η."""

    b: float
    value: float
    entropy: float
    tilt: float


class Curve:
    """ψ(b) = max { V(p) + λ H(p) : p·c = b }: what is left of the search when b is chosen.

    Among the distributions of one b the objective is concave, and its maximum is
    p_k ∝ exp(s_k / (λ b) - η c_k) with the η that makes p·c = b. The curve itself may have several
    maxima, so it is searched by bounds. Write q = p / b and t = 1 / b. Then, for any constant h,

        V(p) + λ H(p) = q·s + λ b [E(q, t) - t h] + λ h,   E(q, t) = -Σ_k q_k log(q_k / t) = t H(p),

    and E is concave in q and t together. For b from l to r the factor b is at most r where the
    bracket is above 0 and at least l where it is below, so the larger of two functions bounds the
    objective, with r and with l in the place of b, both concave in t. Each is below its tangent at
    that end, whose slope is known there. A piece is halved while its bound says that it may hide
    something better than the best point.

    Args:
        c: above 0 and not all alike, shape `(tasks,)`.
        s: the numerators, shape `(tasks,)`.
        entropy_weight: λ, above 0.
    """

    def __init__(self, c: Floats, s: Floats, entropy_weight: float) -> None:
        self._c = c
        self._s = s
        self._weight = entropy_weight
        self._ends = float(c.min()), float(c.max())
        self._columns = np.stack([np.ones_like(c), c, c**2, s], axis=1)

    def highest(self) -> Peak:
        """Return the highest point, to within λ / 1000 of the highest there is."""
        least, most = self._ends
        count = max(2, int(np.log(most / least) / np.log(RATIO)))
        points = self._at(np.geomspace(least, most, count + 2)[1:-1], np.zeros(count))
        for _ in range(ROUNDS):
            best = float(self._heights(points).max())
            promising = np.flatnonzero(self._bounds(points) > best + TOLERANCE * self._weight)
            if len(promising) == 0:
                break
            edges = np.concatenate([[least], points.b, [most]])
            middles = np.sqrt(edges[promising] * edges[promising + 1])
            points = points.and_also(self._at(middles, np.interp(middles, points.b, points.tilt)))
        place = int(np.argmax(self._heights(points)))
        return Peak(*(float(values[place]) for values in vars(points).values()))

    def _heights(self, points: Points) -> Floats:
        """ψ at the points."""
        heights: Floats = points.value + self._weight * points.entropy
        return heights

    def _bounds(self, points: Points) -> Floats:
        """What the curve is at most on each piece, the two outermost included; `(points + 1,)`."""
        least, most = self._ends
        height = self._heights(points)
        pull = self._weight * points.tilt * points.b
        # To the left of each point with h = 0 and to the right with the largest entropy, where the
        # bracket has one sign only; and between two points with the mean of their entropies.
        rise = height - pull
        fall = self._weight * np.log(len(self._c)) - rise
        left = points.b / np.append(least, points.b[:-1]) - 1
        right = 1 - points.b / np.append(points.b[1:], most)
        by_right = np.append(height + left * np.maximum(rise, 0.0), np.inf)
        by_left = np.append(np.inf, height + right * np.maximum(fall, 0.0))
        bounds: Floats = np.minimum(by_right, by_left)
        level = self._weight * (points.entropy[1:] + points.entropy[:-1]) / 2
        inner = np.maximum(
            height[1:] + left[1:] * np.maximum(rise[1:] - level, 0.0),
            height[:-1] + right[:-1] * np.maximum(level - rise[:-1], 0.0),
        )
        bounds[1:-1] = np.minimum(bounds[1:-1], inner)
        return bounds

    def _at(self, b: Floats, tilt: Floats) -> Points:
        """Return the curve at these b, by safeguarded Newton steps for η from these tilts."""
        scores = self._s / (self._weight * b[:, None])
        low, high = self._limits(b, np.ptp(scores, axis=1))
        tilt = np.clip(tilt, low, high)
        for _ in range(100):
            log_total, mean, square, reward = self._moments(scores - tilt[:, None] * self._c)
            excess = mean - b
            if np.all((np.abs(excess) <= 1e-6 * b) | (high - low <= 1e-12 * np.abs(tilt))):
                break
            low, high = np.where(excess > 0, tilt, low), np.where(excess > 0, high, tilt)
            stepped = tilt + excess / np.maximum(square - mean**2, 1e-300)
            inside = (stepped > low) & (stepped < high)
            tilt = np.where(inside, stepped, (low + high) / 2)
        return Points(b, reward / mean, log_total - reward / (self._weight * b) + tilt * mean, tilt)

    def _moments(self, z: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return log Σ exp z, p·c, p·c² and p·s for p = softmax(z) of each row; changes `z`."""
        top = z.max(axis=1)
        z -= top[:, None]
        np.exp(z, out=z)
        total, *moments = (z @ self._columns).T
        log_total: Floats = top + np.log(total)
        mean, square, reward = (moment / total for moment in moments)
        return log_total, mean, square, reward

    def _limits(self, b: Floats, spans: Floats) -> tuple[Floats, Floats]:
        """Between which η the tilt is that makes p·c = b.

        Beyond them the tasks on one side of b have next to no weight, whatever their scores, which
        differ by at most `spans`.
        """
        least, most = self._ends
        below, above = b - least, most - b
        slack = spans + np.log(len(self._c))
        high = np.maximum(slack + np.log(above / below), 1.0) / below
        low = -np.maximum(slack - np.log(above / below), 1.0) / above
        return low, high
