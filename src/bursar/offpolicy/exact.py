"""The distribution that maximises V + λH, exactly."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bursar.offpolicy.objective import Totals

#: How many values v are looked at, for each e-fold between the c_k, if φ may have several maxima.
GRID = 8
ROUNDING = 1e-14
#: How small φ' and p·(s - v c) have to be.
CLOSE = 1e-11


@dataclass(frozen=True)
class Exact:
    """Maximises V(p) + λ H(p) over all distributions p by its stationarity.

    V(p) = p·s / p·c is not concave, so V + λH can have more than one local maximum. But among the
    distributions of one value v the entropy has a single one, with p·(s - v c) = 0 as its only
    constraint: p_k ∝ exp(μ (s_k - v c_k)), with the μ that minimises the convex
    h(v) = log Σ_k exp(μ (s_k - v c_k)), which is the entropy itself. What is left is the best v of

        φ(v) = v + λ h(v),   φ'(v) = 1 - λ μ p·c.

    At φ' = 0 stands the fixed point p_k ∝ exp((s_k - V c_k) / (λ p·c)). The search runs from the
    value of the uniform distribution, where μ = 0 and φ' = 1, to that of the best task, where
    μ = ∞: a grid of v finds the highest neighbourhood, and Newton steps within its bracket, halved
    where they would leave it, find the zero. As h never rises, no v between two neighbours of the
    grid is better than the left one by more than their distance.

    >>> Exact()(Totals(np.ones(2), np.array([0.2, 0.4])), 0.25).round(4).tolist()
    [0.31, 0.69]
    """

    def __call__(self, totals: Totals, entropy_weight: float) -> NDArray[np.float64]:
        """The distribution, shape `(tasks,)`."""
        c = totals.weights / totals.weights.mean()
        worth = totals.rewards / totals.weights
        low, span = worth.min(), np.ptp(worth)
        if span <= ROUNDING * np.abs(worth).max():
            return np.full(len(c), 1 / len(c))
        # Shifting all rewards shifts V alone, and stretching them stretches λ: make them fill 0..1.
        worth = (worth - low) / span
        if entropy_weight <= ROUNDING * span:
            best: NDArray[np.float64] = (worth >= 1 - ROUNDING).astype(np.float64)
            best /= best.sum()
            return best
        if np.ptp(c) <= ROUNDING:
            return _softmax(worth / (entropy_weight / span))
        return _Search(c, worth * c, entropy_weight / span).solve()


class _Search:
    """The search for the best v, in units where the tasks' worths fill 0 to 1 and c averages 1."""

    def __init__(
        self, c: NDArray[np.float64], s: NDArray[np.float64], entropy_weight: float
    ) -> None:
        self._c = c
        self._s = s
        self._weight = entropy_weight
        # From this μ on φ' is below 0 whatever p is: 1 - λ μ p·c, and p·c is at least min c.
        self._most = min(2 / (entropy_weight * float(c.min())), 1e30)

    def solve(self) -> NDArray[np.float64]:
        """The distribution at the best v: Newton steps, and a halved bracket where they fail."""
        low, v, high, mu = self._bracket()
        for _ in range(60):
            found = self._newton(low, v, high, mu)
            if found is not None:
                return found
            mu, p = self._tilt(v, mu)
            slope = 1 - self._weight * mu * float(p @ self._c)
            low, high = (v, high) if slope > 0 else (low, v)
            v = (low + high) / 2
        return p

    def _newton(self, low: float, v: float, high: float, mu: float) -> NDArray[np.float64] | None:
        """The distribution at a maximum of φ within the bracket, if Newton steps find it.

        They solve p·a = 0 and φ' = 0 for v and μ at once, with a = s - v c.
        """
        for _ in range(20):
            a = self._s - v * self._c
            p = _softmax(mu * a)
            pa, pc = p * a, p * self._c
            mean, b = float(pa.sum()), float(pc.sum())
            square = float(pa @ a)
            slope = 1 - self._weight * mu * b
            if abs(slope) <= CLOSE and mean * mean <= CLOSE * CLOSE * square:
                return p
            # The Jacobian of (p·a, φ'/λ) by μ and v is ((spread, -turn), (-turn, drift)).
            spread = square - mean * mean
            turn = b + mu * (float(pa @ self._c) - mean * b)
            drift = mu * mu * (float(pc @ self._c) - b * b)
            bend = turn * turn - spread * drift
            if bend <= 0:
                return None
            gap = slope / self._weight
            v += (mean * turn + spread * gap) / bend
            mu += (mean * drift + turn * gap) / bend
            if not (low <= v <= high and 0 <= mu <= self._most):
                return None
        return None

    def _bracket(self) -> tuple[float, float, float, float]:
        """Where to look: from, start, to; and μ at the start, left of the best zero of φ'."""
        first, ratio = float(self._s.mean()), float(self._c.max() / self._c.min())
        # φ'' < 0 where μ σ_a σ_c (1 - ρ) < p·c, for the deviations and the correlation of a and c
        # under p. With σ_a ≤ max c / 2, σ_c ≤ (max c - min c) / 2 and μ ≤ 1 / (λ min c) that holds
        # wherever φ' is not below 0: there is but one maximum.
        if ratio * (ratio - 1) < 2 * self._weight:
            return first, first, 1.0, 0.0
        count = int(GRID * max(1.0, np.log(ratio)))
        grid = np.linspace(first, 1.0, count + 1)
        mu, h, b = self._tilts(grid[:-1])
        slopes = np.append(1 - self._weight * mu * b, -1.0)
        slopes[0] = 1.0
        heights = np.append(grid[:-1] + self._weight * h, 1.0)
        falls = np.flatnonzero((slopes[:-1] > 0) & (slopes[1:] <= 0))
        i = int(falls[np.argmax(np.maximum(heights[falls], heights[falls + 1]))])
        # The slopes are known roughly: where one is near 0, its sign is not to be trusted.
        low = grid[i - 1] if i > 0 and slopes[i] < 0.05 else grid[i]
        high = grid[i + 2] if i + 2 <= count and slopes[i + 1] > -0.05 else grid[i + 1]
        return float(low), float(grid[i]), float(high), float(mu[i])

    def _tilts(
        self, grid: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """μ, h and p·c at each v, close enough to compare neighbourhoods; shapes `(values,)`."""
        c = self._c.astype(np.float32)
        a = self._s.astype(np.float32) - grid.astype(np.float32)[:, None] * c
        mu = np.full(len(grid), self._most, dtype=np.float32)
        p, h, mean = _tilted(mu, a)
        b = p @ c
        # Where even the largest μ is too small, φ' is below 0 and that is all there is to know.
        rows = np.flatnonzero(mean > 0)
        a, low, high, at = a[rows], np.zeros_like(mu[rows]), mu[rows], np.zeros_like(mu[rows])
        for _ in range(60):
            p, h[rows], mean = _tilted(at, a)
            mu[rows], b[rows] = at, p @ c
            low, high = np.where(mean < 0, at, low), np.where(mean < 0, high, at)
            p *= a
            after = at - mean / np.maximum(np.einsum("vk,vk->v", p, a) - mean**2, 1e-30)
            inside = (after >= low) & (after <= high)
            after = np.where(inside, after, np.sqrt(np.maximum(low, 1e-6 * high)) * np.sqrt(high))
            if np.all(np.abs(after - at) * self._weight <= 0.01):
                break
            at = after
        return mu.astype(np.float64), h.astype(np.float64), b.astype(np.float64)

    def _tilt(self, v: float, mu: float) -> tuple[float, NDArray[np.float64]]:
        """The μ that minimises h at v, from one nearby, and the distribution there."""
        a = self._s - v * self._c
        low, high = 0.0, np.inf
        for _ in range(200):
            mu = min(mu, self._most)
            p = _softmax(mu * a)
            pa = p * a
            mean, square = float(pa.sum()), float(pa @ a)
            low, high = (mu, high) if mean < 0 else (low, mu)
            closed = low >= min(high, self._most) * (1 - ROUNDING)
            if closed or mean * mean <= CLOSE * CLOSE * square:
                break
            mu -= mean / max(square - mean * mean, 1e-300)
            if not low < mu < high:
                mu = (low + min(high, self._most)) / 2
        return mu, p


def _tilted(
    mu: NDArray[np.float32], a: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """The p ∝ exp(μ a), log Σ exp(μ a) and p·a, for each row of `a`."""
    p = mu[:, None] * a
    top = p.max(axis=1)
    p -= top[:, None]
    np.exp(p, out=p)
    total = p.sum(axis=1)
    p /= total[:, None]
    return p, top + np.log(total), np.einsum("vk,vk->v", p, a)


def _softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    p: NDArray[np.float64] = np.exp(z - z.max())
    p /= p.sum()
    return p
