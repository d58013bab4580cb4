"""Exp3.S: an adversarial bandit over tasks, rewarded by prediction gain."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bursar.policies.base import Outcome, Policy
from bursar.policies.scaler import QuantileScaler, Scaler
from bursar.policies.signals import Gain


class Exp3S(Policy):
    """Draws tasks in favour of those whose batches lowered their own loss the most.

    EXP3.S with prediction gain (Graves et al. 2017) as in Glover and Hokamp (2019), equation 5.
    With ρ = softmax(w), tasks are drawn from π = (1 - ε) ρ + ε/N. A scaled gain r of task k counts
    as r̃_k = r / π_k, and update number u, with α = 1/(u + 1), is

        w_k ← log[ (1 - α) exp(w_k + η r̃_k) + α/(N-1) Σ_{j≠k} exp(w_j + η r̃_j) ].

    The paper divides by ρ, which is not the distribution that tasks are drawn from: it has no
    lower bound, so a single reward could be of any size.

    Args:
        tasks: the names of the tasks.
        eta: η, how far one reward moves a weight.
        epsilon: ε, the share of the draws that is uniform.
        divide_by: `pi` weights a reward by the distribution it was drawn from, `rho` by the
            paper's letter.
        scaler: brings gains to [-1, 1]; the paper's quantiles if None.

    >>> from bursar.rng import stream
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
        self._set_rho(np.full(len(self.tasks), 1 / len(self.tasks)))

    @property
    def weights(self) -> NDArray[np.float64]:
        """w, up to a constant that no probability depends on; shape `(tasks,)`."""
        return np.log(self._rho)

    def probabilities(self) -> NDArray[np.float64]:
        """π = (1 - ε) ρ + ε/N."""
        return self._probabilities

    def tell(self, outcome: Outcome) -> None:
        """Learn from the gain, if it was measured."""
        if outcome.gain is None or not math.isfinite(outcome.gain) or len(self.tasks) == 1:
            return
        reward = self._scaler(outcome.gain) / self._divisor(outcome)
        self._updates += 1
        self._update(outcome.draw.index, self._eta * reward)

    def _divisor(self, outcome: Outcome) -> float:
        if self._divide_by == "pi":
            return outcome.draw.probability
        return float(self._rho[outcome.draw.index])

    def _update(self, index: int, step: float) -> None:
        # ρ is exp(w) over its sum, so equation 5 is linear in it. The larger of the two changes is
        # divided out before they are made: nothing overflows, however long the run.
        largest = max(step, 0.0)
        others, own = math.exp(-largest), math.exp(step - largest)
        share = float(self._rho[index])
        total = (1 - share) * others + share * own
        alpha = 1 / (self._updates + 1)
        spread = alpha / (len(self.tasks) - 1)
        kept = (1 - alpha - spread) / total
        rho = self._rho * (kept * others)
        rho[index] = kept * own * share
        rho += spread
        self._set_rho(rho)

    def _set_rho(self, rho: NDArray[np.float64]) -> None:
        self._rho = rho
        probabilities = rho * (1 - self._epsilon)
        probabilities += self._epsilon / len(rho)
        probabilities.flags.writeable = False
        self._probabilities = probabilities

    def diagnostics(self) -> dict[str, Any]:
        """The weights by task."""
        return {"weights": dict(zip(self.tasks, self.weights.tolist(), strict=True))}

    def _state(self) -> dict[str, Any]:
        return {
            "updates": self._updates,
            "rho": self._rho.tolist(),
            "scaler": self._scaler.state_dict(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._updates = state["updates"]
        self._set_rho(np.array(state["rho"], dtype=np.float64))
        self._scaler.load_state_dict(state["scaler"])
