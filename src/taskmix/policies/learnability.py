"""Learnability: prefers environments whose pass rate is neither 0 nor 1."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from taskmix.policies.base import StoredPolicy, distribution
from taskmix.policies.signals import Outcome, Rewards
from taskmix.policies.state import Array, ToldDraws


class Learnability(StoredPolicy):
    """Prefers the environments whose pass rate p has the largest p(1 - p).

    The score of SFL (Rutherford et al. 2024) and of LILO (Foster et al. 2025, arXiv 2502.12272),
    which prefers prompts of a language model by it: the variance of a reward of 0 or 1. It
    vanishes for a prompt that is always or never solved, whose completions all have an advantage
    of 0. Here it is the score of an environment,

        π_k = (1 - ε) p_k (1 - p_k) / Σ_j p_j (1 - p_j) + ε/N,

    where p_k is a running mean of the rewards of its draws, p_k ← p_k + α (r - p_k), from 1/2. If
    all p_k are 0 or 1, the distribution is uniform. The running mean, the share that is
    proportional to the score, and the defaults are ours.

    Args:
        tasks: the names of the environments.
        rate: α.
        epsilon: ε, the probability of drawing uniformly.
        lowest: the reward of a failure; rewards are scaled to [0, 1] and clipped.
        highest: the reward of a success.

    >>> from taskmix.rng import stream
    >>> policy, rng = Learnability(["solved", "frontier"]), stream(1, "draws")
    >>> for _ in range(50):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, reward=1.0 if draw.task == "solved" else 0.4))
    >>> policy.probabilities().round(2).tolist()
    [0.1, 0.9]
    """

    name = "learnability"
    beliefs: ClassVar = {"scores": "the largest p(1 - p)"}
    needs = frozenset({Rewards()})
    _saved = ("_pass_rates", "_told")

    def __init__(
        self,
        tasks: Sequence[str],
        rate: float = 0.2,
        epsilon: float = 0.05,
        lowest: float = 0.0,
        highest: float = 1.0,
    ) -> None:
        super().__init__(tasks)
        check_settings(rate, epsilon, lowest, highest)
        self._rate = rate
        self._epsilon = epsilon
        self._lowest, self._highest = lowest, highest
        self._told = ToldDraws()
        self._pass_rates = np.full(len(self.tasks), 0.5)
        self._share()

    def tell(self, outcome: Outcome) -> None:
        reward, draw = outcome.reward, outcome.draw
        if reward is None or not math.isfinite(reward) or not self._told.first(draw.number):
            return
        passed = pass_share(reward, self._lowest, self._highest)
        rates = self._pass_rates
        rates[draw.index] += self._rate * (passed - rates[draw.index])
        self._share()

    def _share(self) -> None:
        shares = learnability_shares(self._pass_rates, self._epsilon)
        self._probabilities = distribution(shares, self.name)

    def diagnostics(self) -> dict[str, Any]:
        scores = self._pass_rates * (1 - self._pass_rates)
        return {"pass_rates": self._named(self._pass_rates), "scores": self._named(scores)}

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._share()


def check_settings(rate: float, epsilon: float, lowest: float, highest: float) -> None:
    if not 0 < rate <= 1 or not 0 < epsilon <= 1:
        raise ValueError(
            f"rate, epsilon: expected numbers above 0 and up to 1, found {rate}, {epsilon}"
        )
    if not lowest < highest:
        raise ValueError(f"lowest, highest: expected lowest < highest, found {lowest}, {highest}")


def learnability_shares(pass_rates: Array, epsilon: float) -> Array:
    """Return shares proportional to p(1 - p), mixed with uniform ones; uniform if all are 0.

    >>> learnability_shares(np.array([0.5, 0.5, 1.0]), epsilon=0.3).round(2).tolist()
    [0.45, 0.45, 0.1]
    """
    scores = pass_rates * (1 - pass_rates)
    total = float(scores.sum())
    shares = scores / total if total > 0 else np.full(len(scores), 1 / len(scores))
    mixed: Array = (1 - epsilon) * shares + epsilon / len(scores)
    return mixed


def pass_share(reward: float, lowest: float, highest: float) -> float:
    """Return a reward on the scale from 0, a failure, to 1, a success.

    >>> pass_share(0.5, -1.0, 1.0), pass_share(7.0, -1.0, 1.0)
    (0.75, 1.0)
    """
    return min(max((reward - lowest) / (highest - lowest), 0.0), 1.0)
