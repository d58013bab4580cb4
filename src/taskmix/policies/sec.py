"""SEC: a bandit on the absolute advantage."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from taskmix.policies.base import StoredPolicy, bounded, distribution
from taskmix.policies.signals import Outcome, Rewards
from taskmix.policies.state import Array, ToldDraws

#: No advantage that is normalised within a group is larger.
LARGEST_ADVANTAGE = 1e3


class SEC(StoredPolicy):
    """Prefers the environments with the largest absolute advantages.

    The Self-Evolving Curriculum of Chen et al. (2025, arXiv 2505.14970). Its bandit has
    an arm for each environment. The reward of an arm is the mean absolute advantage r of the
    completions, a proxy of the size of the gradient. The value of an arm follows TD(0), and arms
    are drawn from a Boltzmann distribution:

        Q_k ← α r + (1 - α) Q_k,        π_k ∝ exp(Q_k / τ).

    Q starts at 0. A group whose rewards are all equal has no advantage, so the values of
    environments that are solved or too hard decrease. With advantages that are divided by the
    standard deviation of their group, r is at most about 1, and τ has to be well below 1 to change
    much.

    The update, its start and the distribution are those of a public copy of the method's code.
    There, a step has prompts of many arms. It updates each arm once, by the mean over its
    completions, and an arm without completions by r = 0. Here a draw updates its own arm only, so
    an environment that is not drawn keeps its value.

    Args:
        tasks: the names of the environments.
        rate: α; 0.5 in the commands of the README of the method's code.
        temperature: τ; in that README 0.2 for a mixture of puzzles, which is the default here, and
            0.4 for mathematics.

    >>> from taskmix.rng import stream
    >>> policy, rng = SEC(["solved", "frontier"]), stream(1, "draws")
    >>> for _ in range(50):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, advantage=0.0 if draw.task == "solved" else 0.8))
    >>> policy.probabilities().round(2).tolist()
    [0.02, 0.98]
    """

    name = "sec"
    beliefs: ClassVar = {"values": "the largest absolute advantage"}
    needs = frozenset({Rewards()})
    _saved = ("_values", "_told")

    def __init__(self, tasks: Sequence[str], rate: float = 0.5, temperature: float = 0.2) -> None:
        super().__init__(tasks)
        if not 0 < rate <= 1:
            raise ValueError(f"rate: expected a number above 0 and up to 1, found {rate}")
        if not temperature > 0:
            raise ValueError(f"temperature: expected a number above 0, found {temperature}")
        self._rate = rate
        self._temperature = temperature
        self._told = ToldDraws()
        self._values = np.zeros(len(self.tasks))
        self._share()

    def tell(self, outcome: Outcome) -> None:
        advantage, draw = bounded(outcome.advantage, LARGEST_ADVANTAGE), outcome.draw
        if advantage is None or not self._told.first(draw.number):
            return
        value = self._values[draw.index]
        self._values[draw.index] = self._rate * abs(advantage) + (1 - self._rate) * value
        self._share()

    def _share(self) -> None:
        self._probabilities = softmax(self._values / self._temperature)

    def diagnostics(self) -> dict[str, Any]:
        return {"values": self._named(self._values)}

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._share()


def softmax(logits: Array) -> Array:
    """Return the softmax as a read-only array.

    >>> softmax(np.array([0.0, np.log(3.0)])).round(4).tolist()
    [0.25, 0.75]
    """
    return distribution(np.exp(logits - logits.max()), "softmax")
