"""Online Data Mixing: a bandit whose reward is the training loss."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from taskmix.policies.base import (
    LARGEST_LOSS,
    StoredPolicy,
    bounded,
    distribution,
    shares_or_uniform,
)
from taskmix.policies.signals import Loss, Outcome
from taskmix.policies.state import Array, ToldDraws
from taskmix.run_info import RunInfo

#: The default warm-up of a run file, as a fraction of its steps. The authors use 2,000 steps.
_WARMUP_FRACTION = 0.05


@dataclass(frozen=True)
class _Rule:
    #: Maps the past reward, the loss, the draw's probability and γ to the new reward.
    update: Callable[[float, float, float, float], float]
    #: Maps the rewards and the previous exploration rate to weights that sum to 1.
    weights: Callable[[Array, float], Array]


def _softmax(rewards: Array, rate: float) -> Array:
    powers = np.exp(rate * (rewards - rewards.max()))
    weights: Array = powers / powers.sum()
    return weights


def _proportional(rewards: Array, _rate: float) -> Array:
    total = float(rewards.sum())
    return rewards / total if total > 0 else np.full(len(rewards), 1 / len(rewards))


_RULES = {
    "paper": _Rule(lambda r, loss, p, gamma: gamma * r + (1 - gamma) * loss / p, _softmax),
    "exp3": _Rule(lambda r, loss, p, gamma: r + loss / (10 * p), _softmax),
    "perplexity": _Rule(
        lambda r, loss, p, gamma: gamma * r + (1 - gamma) * math.exp(loss), _proportional
    ),
}


class ODM(StoredPolicy):
    """Prefers the tasks with a high loss, with exploration that decreases over time.

    Online Data Mixing (Albalak et al. 2023). The reward of a draw is the loss of its batch. With
    exploration rates ε_t = min(1/K, √(ln K / (K t))), outcome number t of task i gives

        R_i ← γ R_i + (1 - γ) loss / p_i,    p = (1 - K ε_t) softmax(ε_{t-1} R) + ε_t.

    The authors' code has two other rules. `exp3` sums R_i ← R_i + loss / (10 p_i). `perplexity`,
    the rule in their instructions, averages m_i ← γ m_i + (1 - γ) e^loss and draws from
    p = (1 - K ε_t) m / Σ m + ε_t, without a softmax.

    Averages start at 0, so a task has a low share until its first outcome after the warm-up.

    Args:
        tasks: the names of the tasks.
        rule: `paper`, `exp3` or `perplexity`.
        smoothing: γ, the weight of the past.
        warmup: the number of initial outcomes that are ignored; the default in a run file is a
            twentieth of the steps.
        start: the probability of each task during the warm-up; uniform if None.

    >>> from taskmix.rng import stream
    >>> policy, rng = ODM(["hard", "easy"]), stream(1, "draws")
    >>> for _ in range(400):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, loss=5.0 if draw.task == "hard" else 1.0))
    >>> policy.probabilities().round(2).tolist()
    [0.55, 0.45]
    """

    name = "odm"
    needs = frozenset({Loss()})
    beliefs: ClassVar = {"rewards": "the highest reward"}
    _saved = ("_outcomes", "_rewards", "_told")

    def __init__(
        self,
        tasks: Sequence[str],
        rule: Literal["paper", "exp3", "perplexity"] = "paper",
        smoothing: float = 0.9,
        warmup: int = 0,
        start: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(tasks)
        if rule not in _RULES:
            raise ValueError(f"rule: expected one of {', '.join(_RULES)}, found {rule!r}")
        if not 0 <= smoothing < 1 or warmup < 0:
            raise ValueError(
                "smoothing, warmup: expected 0 <= smoothing < 1 and warmup >= 0,"
                f" found {smoothing}, {warmup}"
            )
        self._start = shares_or_uniform(start, self.tasks, "start")
        self._rule = _RULES[rule]
        self._smoothing = smoothing
        self._warmup = warmup
        self._told = ToldDraws()
        self._outcomes = 0
        self._rewards = np.zeros(len(self.tasks))
        self._probabilities = self._start

    @classmethod
    def for_run(cls, info: RunInfo, warmup: int | None = None, **options: Any) -> Self:
        warmup = round(_WARMUP_FRACTION * info.steps) if warmup is None else warmup
        return cls(info.tasks, warmup=warmup, **options)

    def tell(self, outcome: Outcome) -> None:
        loss, draw = bounded(outcome.loss, LARGEST_LOSS), outcome.draw
        if loss is None or not self._told.first(draw.number):
            return
        self._outcomes += 1
        if self._outcomes <= self._warmup:
            return
        past = float(self._rewards[draw.index])
        self._rewards[draw.index] = self._rule.update(past, loss, draw.probability, self._smoothing)
        self._mix()

    def _mix(self) -> None:
        count = len(self.tasks)
        rate, previous_rate = self._rate(self._outcomes), self._rate(self._outcomes - 1)
        weights = np.maximum(self._rule.weights(self._rewards, previous_rate), 0.0)
        self._probabilities = distribution((1 - count * rate) * weights + rate, self.name)

    def _rate(self, outcomes: int) -> float:
        """Return ε_t."""
        count = len(self.tasks)
        if outcomes < 1:
            return 1 / count
        return min(1 / count, math.sqrt(math.log(count) / (count * outcomes)))

    def diagnostics(self) -> dict[str, Any]:
        return {"rewards": self._named(self._rewards)}

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._probabilities = self._start
        if self._outcomes > self._warmup:
            self._mix()
