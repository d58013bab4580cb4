"""Exp3.S: an adversarial bandit over tasks, rewarded by prediction gain."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Outcome, Policy, distribution
from taskmix.policies.scaler import QuantileScaler, Scaler
from taskmix.policies.signals import Gain
from taskmix.policies.told import ToldDraws


class Exp3S(Policy):
    """Draws tasks in favour of those whose batches lowered their own loss the most.

    EXP3.S with prediction gain (Graves et al. 2017) as in Glover and Hokamp (2019), equation 5.
    With ρ = softmax(w), tasks are drawn from π = (1 - ε) ρ + ε/N. A scaled gain r of task k counts
    as r̃_k = r / π_k, and update number u, with α = 1/(u + 1), is

        w_k ← log[ (1 - α) exp(w_k + η r̃_k) + α/(N-1) Σ_{j≠k} exp(w_j + η r̃_j) ].

    The paper divides by ρ, which is not the distribution that tasks are drawn from: it has no
    lower bound, so a single reward could be of any size. Both are those of the draw, however late
    its outcome comes; an outcome that is told twice counts once.

    Args:
        tasks: the names of the tasks.
        eta: η, how far one reward moves a weight.
        epsilon: ε, the share of the draws that is uniform.
        divide_by: `pi` weights a reward by the distribution it was drawn from, `rho` by the
            paper's letter.
        scaler: brings gains to [-1, 1]; the paper's quantiles if None.

    >>> from taskmix.rng import stream
    >>> policy, rng = Exp3S(["easy", "stuck"], eta=0.1), stream(1, "draws")
    >>> for _ in range(200):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, gain=0.1 if draw.task == "easy" else 0.0))
    >>> policy.probabilities().round(2).tolist()
    [0.76, 0.24]
    """

    name = "exp3s"
    needs = frozenset({Gain()})

    def __init__(
        self,
        tasks: Sequence[str],
        eta: float = 1e-3,
        epsilon: float = 0.05,
        divide_by: Literal["pi", "rho"] = "pi",
        scaler: Scaler | None = None,
    ) -> None:
        super().__init__(tasks)
        if not eta > 0 or not 0 <= epsilon < 1:
            raise ValueError(
                f"eta, epsilon: expected eta > 0 and 0 <= epsilon < 1, found {eta}, {epsilon}"
            )
        if divide_by not in ("pi", "rho"):
            raise ValueError(f"divide_by: expected 'pi' or 'rho', found {divide_by!r}")
        self._eta = eta
        self._epsilon = epsilon
        self._divide_by = divide_by
        self._scaler = QuantileScaler() if scaler is None else scaler
        self._updates = 0
        self._told = ToldDraws()
        self._uniform = epsilon / len(self.tasks)
        self._ones = np.ones(len(self.tasks))  # for sums: a product is the fastest
        self._probabilities = distribution(self._ones, "tasks")

    @property
    def weights(self) -> NDArray[np.float64]:
        """w, up to a constant that no probability depends on; shape `(tasks,)`."""
        return np.log(self._probabilities - self._uniform)

    def probabilities(self) -> NDArray[np.float64]:
        """π = (1 - ε) ρ + ε/N."""
        return self._probabilities

    def tell(self, outcome: Outcome) -> None:
        """Learn from the gain, if it was measured and not told before."""
        gain, draw = outcome.gain, outcome.draw
        if gain is None or not math.isfinite(gain) or len(self._tasks) == 1:
            return
        if self._told.first(draw.number):
            reward = self._scaler(gain) / self._divisor(draw.probability)
            self._updates += 1
            self._update(draw.index, self._eta * reward)

    def _divisor(self, probability: float) -> float:
        if self._divide_by == "pi":
            return probability
        return (probability - self._uniform) / (1 - self._epsilon)

    def _update(self, index: int, step: float) -> None:
        # ρ is exp(w) over its sum, so equation 5 is linear in it, and affine in π: only π is held.
        # The larger of the two changes is divided out before they are made: nothing overflows.
        others, own = math.exp(-max(step, 0.0)), math.exp(min(step, 0.0))
        # (1 - ε) ρ of this task and of the rest; from the sum as it is, or rounding would add up.
        mine = self._probabilities.item(index) - self._uniform
        rest = float(self._probabilities.dot(self._ones)) - self._epsilon - mine
        alpha = 1 / (self._updates + 1)
        spread = alpha / (len(self._tasks) - 1)
        kept = (1 - alpha - spread) * (1 - self._epsilon) / (rest * others + mine * own)
        least = spread * (1 - self._epsilon) + self._uniform
        factor = kept * others
        probabilities = self._probabilities * factor
        probabilities += least - factor * self._uniform
        probabilities[index] = least + kept * own * mine
        probabilities.setflags(write=False)
        self._probabilities = probabilities

    def diagnostics(self) -> dict[str, Any]:
        """Return the weights by task."""
        return {"weights": dict(zip(self.tasks, self.weights.tolist(), strict=True))}

    def _state(self) -> dict[str, Any]:
        return {
            "updates": self._updates,
            "told": self._told.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._updates = state["updates"]
        self._told.load_state_dict(state["told"])
        self._probabilities = np.array(state["next"]["probabilities"], dtype=np.float64)
        self._probabilities.setflags(write=False)
        self._scaler.load_state_dict(state["scaler"])
