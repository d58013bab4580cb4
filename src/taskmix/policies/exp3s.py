"""Exp3.S: an adversarial bandit over tasks, rewarded by prediction gain."""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from taskmix.policies.base import StoredPolicy, distribution
from taskmix.policies.signals import Gain, Outcome
from taskmix.policies.state import Array, ToldDraws, saved_probabilities
from taskmix.rng import restore, state_of, stream


class Scaler(Protocol):
    """Protocol of reward scalers: scales rewards to a common range by the rewards seen so far."""

    def __call__(self, value: float) -> float:
        """Observe a reward and return it scaled."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return everything that changes over time, as JSON-able values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a scaler with the same arguments."""
        ...


class QuantileScaler:
    """Scales a reward to [-1, 1] by quantiles of the rewards so far.

    Equation 6 of Glover and Hokamp (2019), after Graves et al. (2017). Let q20 and q80 be quantiles
    of a reservoir sample of all unscaled rewards. A reward r is scaled to -1 below q20, to +1 above
    q80, and to 2 (r - q20) / (q80 - q20) - 1 between. A reward is added to the reservoir before the
    quantiles are computed; while they are equal, every reward is scaled to 0.

    Args:
        size: the capacity of the reservoir.
        low: the quantile that is scaled to -1.
        high: the quantile that is scaled to +1.

    >>> scaler = QuantileScaler()
    >>> [round(scaler(gain), 2) + 0.0 for gain in [0.5, 0.1, 0.3, -9.0, 0.2]]
    [0.0, -1.0, 0.0, -1.0, 0.86]
    """

    def __init__(self, size: int = 1000, low: float = 0.2, high: float = 0.8) -> None:
        if size < 1 or not 0 <= low < high <= 1:
            raise ValueError(
                "size, low, high: expected size of at least 1 and 0 <= low < high <= 1,"
                f" found {size}, {low}, {high}"
            )
        self._size = size
        self._low = low
        self._high = high
        self._seen = 0
        self._rng = stream(0, "reservoir")
        self._reservoir: list[float] = []
        self._sorted: list[float] = []  # the reservoir, so that a quantile needs no sort

    def __call__(self, value: float) -> float:
        self._insert(value)
        low, high = self._quantile(self._low), self._quantile(self._high)
        if low == high:
            return 0.0
        if not low < value < high:
            return -1.0 if value <= low else 1.0
        # Halves here and in `_quantile`, so that the difference of huge rewards stays finite.
        return 2 * ((value / 2 - low / 2) / (high / 2 - low / 2)) - 1

    def _insert(self, value: float) -> None:
        # Reservoir sampling: every reward so far is kept with the same probability.
        self._seen += 1
        if len(self._reservoir) < self._size:
            self._reservoir.append(value)
            insort(self._sorted, value)
            return
        place = int(self._rng.random() * self._seen)
        if place < self._size:
            del self._sorted[bisect_left(self._sorted, self._reservoir[place])]
            insort(self._sorted, value)
            self._reservoir[place] = value

    def _quantile(self, level: float) -> float:
        place = level * (len(self._sorted) - 1)
        below = int(place)
        share = place - below
        low = self._sorted[below] / 2
        return 2 * (low + share * (self._sorted[below + 1] / 2 - low)) if share > 0 else 2 * low

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self._seen, "reservoir": [*self._reservoir], "rng": state_of(self._rng)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._seen = state["seen"]
        self._reservoir = list(state["reservoir"])
        self._sorted = sorted(self._reservoir)
        self._rng = restore(state["rng"])


class Exp3S(StoredPolicy):
    """Prefers the tasks whose batches lowered their own loss the most.

    EXP3.S with prediction gain (Graves et al. 2017) as in Glover and Hokamp (2019), equation 5.
    With ρ = softmax(w), tasks are drawn from π = (1 - ε) ρ + ε/N. A scaled gain r of task k is
    weighted as r̃_k = r / π_k, and update number u, with α = 1/(u + 1), is

        w_k ← log[ (1 - α) exp(w_k + η r̃_k) + α/(N-1) Σ_{j≠k} exp(w_j + η r̃_j) ].

    The paper divides by ρ, which is not the distribution of the draws and has no lower bound. Here
    the divisor is the probability at the time of the draw, even if the outcome arrives late. A
    repeated outcome of a draw is ignored.

    Args:
        tasks: the names of the tasks.
        eta: η, the learning rate.
        epsilon: ε, the probability of drawing uniformly.
        divide_by: the divisor of a reward: `pi`, the probability of the draw, or the paper's `rho`.
        scaler: scales gains to [-1, 1]; a `QuantileScaler`, as in the paper, if None.

    >>> from taskmix.rng import stream
    >>> policy, rng = Exp3S(["easy", "stuck"], eta=0.1), stream(1, "draws")
    >>> for _ in range(200):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, gain=0.1 if draw.task == "easy" else 0.0))
    >>> policy.probabilities().round(2).tolist()
    [0.76, 0.24]
    """

    name = "exp3s"
    beliefs: ClassVar = {"weights": "the largest log-weight"}
    needs = frozenset({Gain()})
    _saved = ("_updates", "_told", "_scaler")

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
        self._ones = np.ones(len(self.tasks))  # a dot product is the fastest sum
        self._probabilities = distribution(self._ones, "tasks")

    @property
    def weights(self) -> Array:
        """w, up to a constant that does not affect the probabilities; shape `(tasks,)`."""
        return np.log(self._probabilities - self._uniform)

    def tell(self, outcome: Outcome) -> None:
        gain, draw = outcome.gain, outcome.draw
        if gain is None or not math.isfinite(gain) or len(self._tasks) == 1:
            return
        if self._told.first(draw.number):
            divisor = draw.probability
            if self._divide_by == "rho":
                divisor = (divisor - self._uniform) / (1 - self._epsilon)
            reward = self._scaler(gain) / divisor
            self._updates += 1
            self._update(draw.index, self._eta * reward)

    def _update(self, index: int, step: float) -> None:
        # ρ is exp(w) over its sum, so equation 5 is linear in ρ and affine in π: only π is stored.
        # Both factors are divided by the larger one, so that nothing overflows.
        others, drawn = math.exp(-max(step, 0.0)), math.exp(min(step, 0.0))
        # (1 - ε) ρ of the drawn task and of the rest. The sum is computed, as it may not be 1
        # exactly and rounding errors would accumulate.
        share = self._probabilities.item(index) - self._uniform
        rest = float(self._probabilities.dot(self._ones)) - self._epsilon - share
        alpha = 1 / (self._updates + 1)
        spread = alpha / (len(self._tasks) - 1)
        kept = (1 - alpha - spread) * (1 - self._epsilon) / (rest * others + share * drawn)
        least = spread * (1 - self._epsilon) + self._uniform
        factor = kept * others
        probabilities = self._probabilities * factor
        probabilities += least - factor * self._uniform
        probabilities[index] = least + kept * drawn * share
        probabilities.setflags(write=False)
        self._probabilities = probabilities

    def diagnostics(self) -> dict[str, Any]:
        return {"weights": self._named(self.weights)}

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._probabilities = saved_probabilities(state)
