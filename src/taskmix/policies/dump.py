"""DUMP: upper confidence bounds of the absolute advantage."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from taskmix.policies.base import StoredPolicy, bounded
from taskmix.policies.sec import LARGEST_ADVANTAGE, softmax
from taskmix.policies.signals import Outcome, Rewards
from taskmix.policies.state import Array, ToldDraws

#: The largest number of completions that one outcome counts for.
_MAX_EXAMPLES = 1 << 20


class DUMP(StoredPolicy):
    """Prefers environments with large absolute advantages, and those with few completions so far.

    The curriculum of Wang et al. (2025, arXiv 2504.09710). L_k is the mean absolute advantage of
    the latest completions of environment k, n_k the number of all its completions, n = Σ_k n_k:

        UCB_k = L_k + √(2 ln(n + 1) / (n_k + 1)),        π_k ∝ exp(UCB_k / τ).

    L is 0 before the first outcome. The confidence term lets environments that were given up come
    back after many draws of the others.

    Args:
        tasks: the names of the environments.
        window: the number of latest completions in L_k, 300 as in the authors' code. Their code
            keeps exactly 300; here whole outcomes are kept, because an outcome has only the mean
            of its completions.
        temperature: τ, 0.1 as in the authors' code.

    >>> from taskmix.rng import stream
    >>> policy, rng = DUMP(["solved", "frontier"]), stream(1, "draws")
    >>> for _ in range(50):
    ...     draw = policy.ask(rng)
    ...     advantage = 0.0 if draw.task == "solved" else 0.8
    ...     policy.tell(Outcome(draw, advantage=advantage, examples=32))
    >>> policy.probabilities().round(2).tolist()
    [0.01, 0.99]
    """

    name = "dump"
    beliefs: ClassVar = {"bounds": "the largest upper bound"}
    needs = frozenset({Rewards()})
    _saved = ("_recent", "_counts", "_told")

    def __init__(self, tasks: Sequence[str], window: int = 300, temperature: float = 0.1) -> None:
        super().__init__(tasks)
        if window < 1:
            raise ValueError(f"window: expected at least 1 completion, found {window}")
        if not temperature > 0:
            raise ValueError(f"temperature: expected a number above 0, found {temperature}")
        self._window = window
        self._temperature = temperature
        self._told = ToldDraws()
        # Of each environment, the latest outcomes: the mean absolute advantage and its completions.
        self._recent: list[list[list[float]]] = [[] for _ in self.tasks]
        self._counts = np.zeros(len(self.tasks))
        self._share()

    def tell(self, outcome: Outcome) -> None:
        advantage, draw = bounded(outcome.advantage, LARGEST_ADVANTAGE), outcome.draw
        if advantage is None or not self._told.first(draw.number):
            return
        examples = min(max(1, outcome.examples or 1), _MAX_EXAMPLES)
        self._counts[draw.index] += examples
        recent = self._recent[draw.index]
        recent.append([abs(advantage), examples])
        while sum(count for _, count in recent[1:]) >= self._window:
            del recent[0]
        self._share()

    def _share(self) -> None:
        self._probabilities = softmax(self._bounds() / self._temperature)

    def _bounds(self) -> Array:
        explored = 2 * math.log(self._counts.sum() + 1) / (self._counts + 1)
        bounds: Array = np.array([_mean(recent) for recent in self._recent]) + np.sqrt(explored)
        return bounds

    def diagnostics(self) -> dict[str, Any]:
        return {"bounds": self._named(self._bounds())}

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._share()


def _mean(recent: list[list[float]]) -> float:
    total = sum(count for _, count in recent)
    return sum(value * count for value, count in recent) / total if total else 0.0
