"""Solvers for the distribution p that maximises V(p) + λ H(p)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taskmix.errors import UserError
from taskmix.offpolicy.curve import Curve
from taskmix.offpolicy.sample import Sample
from taskmix.policies.state import Array

ROUNDING = 1e-14
#: The tolerance of φ' = 0 and p·(s - v c) = 0.
TOLERANCE = 1e-11


@dataclass(frozen=True, eq=False)
class Totals:
    """The sums of a log on which the value of a fixed policy p depends: V(p) = p·s / p·c.

    V is the weighted importance sampling estimate Σ u_t r_t / Σ u_t with u_t = p(a_t) / π_t(a_t).

    Args:
        weights: c_k = Σ_{t: a_t = k} 1 / π_t(a_t), above 0, shape `(tasks,)`.
        rewards: s_k, the same sum with each term times r_t, shape `(tasks,)`.
    """

    weights: Array
    rewards: Array

    @classmethod
    def of(cls, sample: Sample) -> "Totals":
        """Return the totals of a sample.

        A task that could be drawn but never was gets the mean c and s of the drawn tasks. With
        zeros it would cost nothing whatever its share, and the maximum would lie on the tasks about
        which nothing is known.
        """
        inverse = 1 / sample.propensities
        weights = sample.by_task(inverse)
        rewards = sample.by_task(inverse * sample.rewards)
        unseen = weights == 0
        if np.any(unseen):
            weights[unseen] = weights[~unseen].mean()
            rewards[unseen] = rewards[~unseen].mean()
        return cls(weights, rewards)

    def value(self, probabilities: Array) -> float:
        """V(p)."""
        return float(probabilities @ self.rewards / (probabilities @ self.weights))


#: Finds the distribution that maximises V + λH, from the totals and λ.
Solver = Callable[[Totals, float], Array]


def entropy(probabilities: Array) -> float:
    """Return the Shannon entropy H(p) in nats."""
    positive = probabilities[probabilities > 0]
    return float(-(positive @ np.log(positive)))


def objective(totals: Totals, probabilities: Array, entropy_weight: float) -> float:
    """Return V(p) + λ H(p)."""
    return totals.value(probabilities) + entropy_weight * entropy(probabilities)


def _softmax(z: Array) -> Array:
    p: Array = np.exp(z - z.max())
    p /= p.sum()
    return p


@dataclass(frozen=True)
class Evolution:
    """Maximises V(p) + λ H(p) for p = softmax(ω) by CMA-ES over ω, as in the paper.

    Glover and Hokamp (2019, section 3.3.2): 20 generations of 64 on their bandit, 50 on GLUE. It
    starts at ω = 0 and returns the mean of the search distribution, not the best sample. Needs the
    extra `improve`.

    Args:
        generations: the maximum number of generations; the search stops when it has converged.
        population: the number of candidates in each generation.
        sigma: the first step size.
        seed: the seed of the candidates.
    """

    generations: int = 50
    population: int = 64
    sigma: float = 0.5
    seed: int = 0

    def __call__(self, totals: Totals, entropy_weight: float) -> Array:
        """Return the distribution, shape `(tasks,)`."""
        tasks = len(totals.weights)
        if tasks == 1:
            return np.ones(1)
        try:
            from cmaes import CMA
        except ImportError:
            raise UserError(
                "solver: expected the package cmaes for 'cmaes', found it missing; "
                "pip install 'taskmix[improve]', or use solver='exact'"
            ) from None
        search = CMA(
            mean=np.zeros(tasks),
            sigma=self.sigma,
            population_size=self.population,
            seed=self.seed,
        )
        for _ in range(self.generations):
            omegas = np.array([search.ask() for _ in range(self.population)])
            costs = -_objectives(totals, omegas, entropy_weight)
            search.tell(list(zip(omegas, costs.tolist(), strict=True)))
            if search.should_stop():
                break
        return _softmax(search.mean)


def _objectives(totals: Totals, omegas: Array, entropy_weight: float) -> Array:
    """Return V + λH for each row of ω."""
    p: Array = np.exp(omegas - omegas.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    entropies = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    objectives: Array = (p @ totals.rewards) / (p @ totals.weights)
    objectives += entropy_weight * entropies
    return objectives


@dataclass(frozen=True)
class Exact:
    """Maximises V(p) + λ H(p) over all distributions p by Newton steps to a stationary point.

    V(p) = p·s / p·c is not concave, so V + λH can have several local maxima. But among the
    distributions with one value v, constrained only by p·(s - v c) = 0, the entropy has a single
    maximum: p_k ∝ exp(μ (s_k - v c_k)), with the μ that minimises the convex
    h(v) = log Σ_k exp(μ (s_k - v c_k)), and its entropy is h(v). It remains to maximise

        φ(v) = v + λ h(v),   φ'(v) = 1 - λ μ p·c.

    φ' = 0 gives the fixed point p_k ∝ exp((s_k - V c_k) / (λ p·c)), found by Newton steps for v and
    μ. If the c_k are similar, φ has one maximum, and the steps start from the value of the uniform
    distribution. Otherwise they start from the highest maximum that `Curve` finds, to within
    λ / 1000 of the objective.

    >>> Exact()(Totals(np.ones(2), np.array([0.2, 0.4])), 0.25).round(4).tolist()
    [0.31, 0.69]
    """

    def __call__(self, totals: Totals, entropy_weight: float) -> Array:
        """Return the distribution, shape `(tasks,)`."""
        c = totals.weights / totals.weights.mean()
        worth = totals.rewards / totals.weights
        low, span = worth.min(), np.ptp(worth)
        if span <= ROUNDING * np.abs(worth).max():
            return np.full(len(c), 1 / len(c))
        # Shifting all rewards only shifts V, and scaling them scales λ: bring them to 0 ... 1.
        worth = (worth - low) / span
        if entropy_weight <= ROUNDING * span:
            best: Array = (worth >= 1 - ROUNDING).astype(np.float64)
            best /= best.sum()
            return best
        if np.ptp(c) <= ROUNDING:
            return _softmax(worth / (entropy_weight / span))
        return _Search(c, worth * c, entropy_weight / span).solve()


class _Search:
    """The search for the best v, with s_k / c_k scaled to 0 ... 1 and c to a mean of 1."""

    def __init__(self, c: Array, s: Array, entropy_weight: float) -> None:
        self._c, self._s = c, s
        self._totals = Totals(c, s)
        self._weight = entropy_weight
        # From this μ on, φ' = 1 - λ μ p·c is below 0 for any p, as p·c is at least min c.
        self._most = min(2 / (entropy_weight * float(c.min())), 1e30)

    def solve(self) -> Array:
        ratio = float(self._c.max() / self._c.min())
        # φ'' < 0 where μ σ_a σ_c (1 - ρ) < p·c, for the deviations and the correlation of a and c
        # under p. With σ_a ≤ max c / 2, σ_c ≤ (max c - min c) / 2 and μ ≤ 1 / (λ min c) that holds
        # wherever φ' is not below 0: there is one maximum.
        if ratio * (ratio - 1) < 2 * self._weight:
            uniform = float(self._s.mean())
            p = self._newton(uniform, 0.0)
            return self._bisected(uniform, 0.0) if p is None else p
        peak = Curve(self._c, self._s, self._weight).highest()
        mu = 1 / (self._weight * peak.b)
        # φ' = 0 holds by this μ; p·(s - v c) = 0 does not yet.
        p = self._newton(self._weight * peak.b * peak.tilt, mu)
        height = peak.value + self._weight * peak.entropy
        if p is not None and objective(self._totals, p, self._weight) >= height - TOLERANCE:
            return p
        return self._bisected(peak.value, mu)

    def _bisected(self, v: float, mu: float) -> Array:
        """Return the distribution at the maximum of φ next to v, by bisection."""
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
        """Return values around a maximum of φ, by growing steps uphill from v."""
        uniform = float(self._s.mean())
        uphill = self._slope(*self._tilt(v, mu)) > 0
        step = 1e-3 * (1 - v) + ROUNDING
        while True:
            after = min(max(v + step if uphill else v - step, uniform), 1.0)
            # φ' is 1 at the uniform distribution and below 0 at the best task.
            at_end = after in (uniform, 1.0)
            if at_end or (self._slope(*self._tilt(after, mu)) > 0) != uphill:
                return (v, after) if uphill else (after, v)
            v, step = after, 2 * step

    def _slope(self, mu: float, p: Array) -> float:
        """φ'."""
        return 1 - self._weight * mu * float(p @ self._c)

    def _newton(self, v: float, mu: float) -> Array | None:
        """Solve p·a = 0 and φ' = 0 for v and μ, with a = s - v c; None if the steps diverge."""
        for _ in range(20):
            a = self._s - v * self._c
            p = _softmax(mu * a)
            pa, pc = p * a, p * self._c
            mean, b = float(pa.sum()), float(pc.sum())
            square = float(pa @ a)
            slope = 1 - self._weight * mu * b
            if abs(slope) <= TOLERANCE and mean * mean <= TOLERANCE * TOLERANCE * square:
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

    def _tilt(self, v: float, mu: float) -> tuple[float, Array]:
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
            if closed or mean * mean <= TOLERANCE * TOLERANCE * square:
                break
            mu -= mean / max(square - mean * mean, 1e-300)
            if not low < mu < high:
                mu = (low + min(high, self._most)) / 2
        return mu, p
