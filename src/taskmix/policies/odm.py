"""Online Data Mixing: a bandit whose reward is the loss itself."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import LARGEST_LOSS, Outcome, Policy, bounded, distribution, in_order
from taskmix.policies.told import ToldDraws
from taskmix.run_info import RunInfo

Array = NDArray[np.float64]

#: A run file's warm-up, as a share of its steps: our choice. The authors' scripts have 2,000 steps.
_WARMUP = 0.05


@dataclass(frozen=True)
class _Rule:
    """What a loss adds to its task's reward, and what shares rewards are worth.

    Args:
        count: the reward before, the loss, the probability of the draw and the weight of the past
            to the reward after it.
        weigh: rewards and the exploration rate before this draw to weights that sum to one.
    """

    count: Callable[[float, float, float, float], float]
    weigh: Callable[[Array, float], Array]


def _softmax(rewards: Array, rate: float) -> Array:
    powers = np.exp(rate * (rewards - rewards.max()))
    weights: Array = powers / powers.sum()
    return weights


def _proportional(rewards: Array, _rate: float) -> Array:
    total = float(rewards.sum())
    return rewards / total if total > 0 else np.full(len(rewards), 1 / len(rewards))


_RULES = {
    "paper": _Rule(lambda r, loss, p, kept: kept * r + (1 - kept) * loss / p, _softmax),
    "exp3": _Rule(lambda r, loss, p, kept: r + loss / (10 * p), _softmax),
    "perplexity": _Rule(
        lambda r, loss, p, kept: kept * r + (1 - kept) * math.exp(loss), _proportional
    ),
}


class ODM(Policy):
    """Draws tasks in favour of those whose loss is high, ever less of them at random.

    Online Data Mixing (Albalak et al. 2023). The reward of a draw is the loss of its batch. With
    exploration rates ε_t = min(1/K, √(ln K / (K t))), outcome number t of task i gives

        R_i ← γ R_i + (1 - γ) loss / p_i,    p = (1 - K ε_t) softmax(ε_{t-1} R) + ε_t.

    What the authors published has more than one rule: `exp3` adds up R_i += loss / (10 p_i);
    `perplexity`, which their instructions name as the method, averages m_i ← γ m_i + (1 - γ) e^loss
    and draws p = (1 - K ε_t) m / Σ m + ε_t, without any softmax.

    The reward is how high a loss is, not how it falls: a task that nobody can learn keeps its
    share. Averages start at 0, so that a task not yet drawn when the warm-up ends has ε_t alone.

    Args:
        tasks: the names of the tasks.
        rule: `paper`, `exp3` or `perplexity`.
        smoothing: γ, the weight of the past.
        warmup: outcomes from which nothing is learned; a run file's default is a twentieth of its
            steps.
        start: by task, the shares of the draws in the warm-up; uniform if None.

    >>> from taskmix.rng import stream
    >>> policy, rng = ODM(["hard", "easy"]), stream(1, "draws")
    >>> for _ in range(400):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, loss=5.0 if draw.task == "hard" else 1.0))
    >>> policy.probabilities().round(2).tolist()
    [0.55, 0.45]
    """

    name = "odm"

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
        shares = dict.fromkeys(self.tasks, 1.0) if start is None else start
        ordered = in_order(shares, self.tasks, "start")
        self._start = distribution(np.array(list(ordered.values()), dtype=np.float64), "start")
        self._rule = _RULES[rule]
        self._smoothing = smoothing
        self._warmup = warmup
        self._told = ToldDraws()
        self._outcomes = 0
        self._rewards = np.zeros(len(self.tasks))
        self._probabilities = self._start

    @classmethod
    def for_run(cls, info: RunInfo, warmup: int | None = None, **options: Any) -> Self:
        """The policy that a run file means."""
        steps = round(_WARMUP * info.steps) if warmup is None else warmup
        return cls(info.tasks, warmup=steps, **options)

    def probabilities(self) -> Array:
        """Return the shares of the rewards beside a falling part that is uniform."""
        return self._probabilities

    def tell(self, outcome: Outcome) -> None:
        """Learn from the loss, if it is a number and not told before."""
        loss, draw = bounded(outcome.loss, LARGEST_LOSS), outcome.draw
        if loss is None or not self._told.first(draw.number):
            return
        self._outcomes += 1
        if self._outcomes <= self._warmup:
            return
        before = float(self._rewards[draw.index])
        self._rewards[draw.index] = self._rule.count(
            before, loss, draw.probability, self._smoothing
        )
        self._share()

    def _share(self) -> None:
        count = len(self.tasks)
        rate, before = self._rate(self._outcomes), self._rate(self._outcomes - 1)
        weights = np.maximum(self._rule.weigh(self._rewards, before), 0.0)
        self._probabilities = distribution((1 - count * rate) * weights + rate, self.name)

    def _rate(self, outcomes: int) -> float:
        """ε_t."""
        count = len(self.tasks)
        if outcomes < 1:
            return 1 / count
        return min(1 / count, math.sqrt(math.log(count) / (count * outcomes)))

    def diagnostics(self) -> dict[str, Any]:
        """Return the rewards by task."""
        return {"rewards": dict(zip(self.tasks, self._rewards.tolist(), strict=True))}

    def _state(self) -> dict[str, Any]:
        return {
            "outcomes": self._outcomes,
            "rewards": self._rewards.tolist(),
            "told": self._told.state_dict(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._outcomes = state["outcomes"]
        self._rewards = np.array(state["rewards"], dtype=np.float64)
        self._told.load_state_dict(state["told"])
        self._probabilities = self._start
        if self._outcomes > self._warmup:
            self._share()
