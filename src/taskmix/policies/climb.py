"""Climb: Thompson sampling on the improvement of the reward."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from taskmix.policies.base import LARGEST_REWARD, StoredPolicy, bounded
from taskmix.policies.signals import Outcome, Rewards
from taskmix.policies.state import Array, ToldDraws
from taskmix.policies.thompson import probability_largest


class Climb(StoredPolicy):
    """Prefers the environments whose reward is rising.

    Thompson sampling with Beta arms as in Guo, Pasunuru and Bansal (2019, Algorithm 1), where the
    success s of a draw is an improvement of the environment's own reward: s = 1 if its mean reward
    is above that of the environment's previous outcome, else 0. Then

        (a, b) ← (1 - γ) (a, b) + γ (1, 1)  for all;  (a, b) ← (a + s, b + 1 - s)  for k.

    A reward that stays the same is no improvement, so environments that are solved or too hard
    fail every time. On a noisy plateau, every second draw is a success by chance. Each draw takes
    the environment with the largest sample of Beta(a_k, b_k), mixed with a fraction ε of uniform
    draws.

    Args:
        tasks: the names of the environments.
        decay: γ; the posterior remembers about 1/γ outcomes of all environments together.
        epsilon: ε.

    >>> from taskmix.rng import stream
    >>> policy, rng = Climb(["solved", "rising"]), stream(1, "draws")
    >>> for step in range(60):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, reward=1.0 if draw.task == "solved" else 0.01 * step))
    >>> policy.probabilities().round(2).tolist()
    [0.03, 0.97]
    """

    name = "climb"
    beliefs: ClassVar = {"utilities": "the highest probability of a rise"}
    needs = frozenset({Rewards()})
    _saved = ("_beliefs", "_latest", "_seen", "_told")

    def __init__(
        self,
        tasks: Sequence[str],
        decay: float = 0.02,
        epsilon: float = 0.05,
    ) -> None:
        super().__init__(tasks)
        if not 0 < epsilon <= 1 or not 0 <= decay < 1:
            raise ValueError(
                "epsilon, decay: expected 0 < epsilon <= 1 and 0 <= decay < 1, "
                f"found {epsilon}, {decay}"
            )
        self._decay = decay
        self._epsilon = epsilon
        self._told = ToldDraws()
        self._beliefs = np.ones((2, len(self.tasks)))  # rows a and b
        self._latest = np.zeros(len(self.tasks))
        self._seen = np.zeros(len(self.tasks), dtype=np.bool_)
        self._share()

    def tell(self, outcome: Outcome) -> None:
        reward, k = bounded(outcome.reward, LARGEST_REWARD), outcome.draw.index
        if reward is None or not self._told.first(outcome.draw.number):
            return
        if self._seen[k]:
            self._beliefs *= 1 - self._decay
            self._beliefs += self._decay
            self._beliefs[0 if reward > self._latest[k] else 1, k] += 1
            self._share()
        self._seen[k], self._latest[k] = True, reward

    def _share(self) -> None:
        # The sample itself is never drawn: a draw from the chances of each arm to be the largest is
        # the same, and its propensity is exact.
        chances = probability_largest(*self._beliefs)
        shares: Array = (1 - self._epsilon) * chances + self._epsilon / len(self.tasks)
        shares.setflags(write=False)
        self._probabilities = shares

    def diagnostics(self) -> dict[str, Any]:
        a, b = self._beliefs
        utilities = self._named(a / (a + b))
        return {"a": self._named(a), "b": self._named(b), "utilities": utilities}

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._share()
