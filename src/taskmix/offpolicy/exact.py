"""The distribution that maximises V + λH, exactly."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy.curve import Curve
from taskmix.offpolicy.objective import Totals, entropy

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

    At φ' = 0 stands the fixed point p_k ∝ exp((s_k - V c_k) / (λ p·c)), which Newton steps for v
    and μ find. Where the c_k are much alike φ has one maximum, and they start from the value of
    the uniform distribution. Elsewhere `Curve` finds where the highest maximum is, to within
    λ / 1000 of the objective, and they start there.

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
        """Return the distribution at the best v."""
        ratio = float(self._c.max() / self._c.min())
        # φ'' < 0 where μ σ_a σ_c (1 - ρ) < p·c, for the deviations and the correlation of a and c
        # under p. With σ_a ≤ max c / 2, σ_c ≤ (max c - min c) / 2 and μ ≤ 1 / (λ min c) that holds
        # wherever φ' is not below 0: there is but one maximum.
        if ratio * (ratio - 1) < 2 * self._weight:
            first = float(self._s.mean())
            found = self._newton(first, 0.0)
            return self._bisected(first, 0.0) if found is None else found
        peak = Curve(self._c, self._s, self._weight).highest()
        mu = 1 / (self._weight * peak.b)
        # The point has φ' = 0 by its μ; what is missing is p·(s - v c) = 0.
        found = self._newton(self._weight * peak.b * peak.tilt, mu)
        height = peak.value + self._weight * peak.entropy
        if found is not None and self._height(found) >= height - CLOSE:
            return found
        return self._bisected(peak.value, mu)

    def _bisected(self, v: float, mu: float) -> NDArray[np.float64]:
        """The distribution at the maximum of φ next to v, where Newton steps lead elsewhere."""
        low, high = self._bracket(v, mu)
        for _ in range(60):
            v = (low + high) / 2
            mu, p = self._tilt(v, mu)
            if self._slope(mu, p) > 0:
                low = v
            else:
                high = v
        return p

    def _bracket(self, v: float, mu: float) -> tuple[float, float]:
        """Values around a maximum of φ, by growing steps uphill from v."""
        first = float(self._s.mean())
        uphill = self._slope(*self._tilt(v, mu)) > 0
        step = 1e-3 * (1 - v) + ROUNDING
        while True:
            after = min(max(v + step if uphill else v - step, first), 1.0)
            # φ' is 1 at the uniform distribution and below 0 at the best task.
            at_end = after in (first, 1.0)
            if at_end or (self._slope(*self._tilt(after, mu)) > 0) != uphill:
                return (v, after) if uphill else (after, v)
            v, step = after, 2 * step

    def _height(self, p: NDArray[np.float64]) -> float:
        """V(p) + λ H(p)."""
        return float(p @ self._s / (p @ self._c)) + self._weight * entropy(p)

    def _slope(self, mu: float, p: NDArray[np.float64]) -> float:
        """φ'."""
        return 1 - self._weight * mu * float(p @ self._c)

    def _newton(self, v: float, mu: float) -> NDArray[np.float64] | None:
        """Return the distribution at a maximum of φ, if Newton steps find it.

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
            if not (v <= 1 and 0 <= mu <= self._most):
                return None
        return None

    def _tilt(self, v: float, mu: float) -> tuple[float, NDArray[np.float64]]:
        """Return the μ that minimises h at v, from one nearby, and the distribution there."""
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


def _softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    p: NDArray[np.float64] = np.exp(z - z.max())
    p /= p.sum()
    return p
