"""Learnability: prefers environments whose pass rate is neither 0 nor 1."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from taskmix.policies.base import StoredPolicy, bounded, distribution
from taskmix.policies.signals import Outcome, Rewards
from taskmix.policies.state import ToldDraws


class Learnability(StoredPolicy):
    """Prefers the environments whose pass rate p has the largest p(1 - p).

    The score of SFL (Rutherford et al. 2024) and of Foster et al. (2025, arXiv 2502.12272), who
    prefer prompts of a language model by it: the variance of a reward of 0 or 1. It vanishes for a
    prompt that is always or never solved, whose completions all have an advantage of 0. Here it is
    the score of an environment,

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
        if not 0 < rate <= 1 or not 0 < epsilon <= 1:
            raise ValueError(
                f"rate, epsilon: expected numbers above 0 and up to 1, found {rate}, {epsilon}"
            )
        if not lowest < highest:
            raise ValueError(
                f"lowest, highest: expected lowest < highest, found {lowest}, {highest}"
            )
        self._rate = rate
        self._epsilon = epsilon
        self._lowest, self._highest = lowest, highest
        self._told = ToldDraws()
        self._pass_rates = np.full(len(self.tasks), 0.5)
        self._share()

    def tell(self, outcome: Outcome) -> None:
        reward, draw = outcome.reward, outcome.draw
        scaled = (
            None if reward is None else (reward - self._lowest) / (self._highest - self._lowest)
        )
        passed = bounded(scaled, 1.0)
        if passed is None or not self._told.first(draw.number):
            return
        rates = self._pass_rates
        rates[draw.index] += self._rate * (max(passed, 0.0) - rates[draw.index])
        self._share()

    def _share(self) -> None:
        scores = self._pass_rates * (1 - self._pass_rates)
        total = float(scores.sum())
        shares = scores / total if total > 0 else np.full(len(scores), 1 / len(scores))
        mixed = (1 - self._epsilon) * shares + self._epsilon / len(scores)
        self._probabilities = distribution(mixed, self.name)

    def diagnostics(self) -> dict[str, Any]:
        scores = self._pass_rates * (1 - self._pass_rates)
        return {"pass_rates": self._named(self._pass_rates), "scores": self._named(scores)}

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._share()
