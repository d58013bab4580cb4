"""Progress: more batches for the tasks whose own batches still teach something."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bursar.policies.base import Outcome, Policy

#: What each forecast keeps of its past at every draw: from the last step alone to some forty.
_KEPT = np.array([0.0, 0.5, 0.8, 0.95])
#: By how much of its error a forecast corrects its level and its slope, and what variance the
#: slope has for noise of variance 1: discounted least squares of a line (Brown 1963).
_LEVEL_GAIN = 1 - _KEPT**2
_SLOPE_GAIN = (1 - _KEPT) ** 2
_VARIANCE = (2 * (1 - _KEPT) ** 3 / (1 + _KEPT) ** 3).tolist()
#: A recent forecast error counts this much, an older one ever less.
_RECENT = 0.1


class Progress(Policy):
    """Draws tasks in proportion to how much a draw of them raises the likelihood of their batches.

    Glover and Hokamp (2019) want the mean likelihood over tasks to be high when the budget is
    spent. To first order, one more draw of task k adds its slope to that: the rise b_k of its
    likelihood s = exp(-loss) from one draw of it to the next. A task that has converged, or is
    stuck, has none, and its draws are wasted. So

        p_k = (1 - ε) max(b_k, 0) / Σ_j max(b_j, 0) + ε/N,

    in proportion rather than all to the largest, because a slope can only be watched by drawing:
    every task that still rises stays in view, and ε/N finds those that begin to rise, or that were
    forgotten. Nothing is measured but the loss of the batches that are trained on anyway.

    A batch's loss is noisy. Three things keep noise from being taken for progress:

    - Slopes come from discounted least squares, at four rates from "the last step" to
      "the last forty". Each task uses the rate that forecast its own batches best: a clean curve is
      followed at once, a noisy one is averaged.
    - Noise shows in rises that are taken back at the next draw. A task's noise variance is
      therefore minus the mean product of successive rises (σ² = -E[Δ_i Δ_{i+1}] for a constant plus
      noise), and 0 if that product is positive; it gives the variance v_k of the slope.
    - ε grows from `explore` to 1 as noise explains the slopes: 1 - ε = (1 - explore) · max(0,
      1 - Σ v / Σ b²). Where little can be told from noise, tasks are drawn almost uniformly,
      but not quite: noise that is many times a step's rise still costs a little against RANDOM.

    Until two losses of each task are known there is no slope, and the others wait. A loss that
    comes after that of a later draw of its task is left out: it says nothing of the rise since.

    In the bandit of the paper it passes the ORACLE, which knows how many draws each task needs but
    not when a task has had them.

    Args:
        tasks: the names of the tasks.
        explore: the share of the draws that is uniform when there is no noise.

    >>> from bursar.rng import stream
    >>> policy, rng = Progress(["rising", "done"]), stream(1, "draws")
    >>> for step in range(20):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, loss=3 - 0.1 * step if draw.task == "rising" else 0.5))
    >>> policy.probabilities().round(3).tolist()
    [0.975, 0.025]
    """

    name = "progress"

    def __init__(self, tasks: Sequence[str], explore: float = 0.05) -> None:
        super().__init__(tasks)
        if not 0 < explore <= 1:
            raise ValueError(f"explore: expected a number above 0 and up to 1, found {explore}")
        self._explore = explore
        shape = (len(self.tasks), len(_KEPT))
        self._ones = np.ones(len(self.tasks))  # for sums: a product is the fastest
        self._levels = np.zeros(shape)
        self._slopes = np.zeros(shape)
        self._errors = np.zeros(shape)
        self._seen = np.zeros(len(self.tasks), dtype=np.int64)
        self._newest = np.zeros(len(self.tasks), dtype=np.int64)
        self._new = len(self.tasks)  # how many of them were seen less than twice
        self._rises = np.zeros(len(self.tasks))
        self._products = np.zeros(len(self.tasks))
        self._best = np.zeros(len(self.tasks))
        self._variances = np.zeros(len(self.tasks))
        self._share()

    def probabilities(self) -> NDArray[np.float64]:
        """In proportion to the slopes, as far as they can be told from noise."""
        return self._probabilities

    def tell(self, outcome: Outcome) -> None:
        """Learn from the loss, if it is a number."""
        draw = outcome.draw
        if outcome.loss is None or not math.isfinite(outcome.loss):
            return
        if draw.number <= self._newest[draw.index]:
            return
        self._newest[draw.index] = draw.number
        # A loss below 0 is no likelihood of an outcome; it counts as certain.
        self._observe(draw.index, math.exp(-max(outcome.loss, 0.0)))
        self._share()

    def _observe(self, k: int, likelihood: float) -> None:
        # With nothing kept, the first level is the latest likelihood itself.
        rise = likelihood - float(self._levels[k, 0])
        if self._seen[k] == 0:
            self._levels[k] = likelihood
        elif self._seen[k] == 1:
            self._levels[k] = likelihood
            self._slopes[k] = rise
            self._new -= 1
        else:
            weight = max(_RECENT, 1 / float(self._seen[k] - 1))
            self._products[k] += weight * (rise * self._rises[k] - self._products[k])
            self._correct(k, likelihood, weight)
        self._rises[k] = rise
        self._seen[k] += 1
        self._settle(k)

    def _correct(self, k: int, likelihood: float, weight: float) -> None:
        levels, slopes, errors = self._levels[k], self._slopes[k], self._errors[k]
        forecast = levels + slopes
        error = likelihood - forecast
        errors += weight * (error * error - errors)
        levels[:] = forecast + _LEVEL_GAIN * error
        levels[0] = likelihood
        slopes += _SLOPE_GAIN * error

    def _settle(self, k: int) -> None:
        """The task's slope and its variance, by the forecast that erred least."""
        rate = int(self._errors[k].argmin())
        self._best[k] = self._slopes[k, rate]
        self._variances[k] = max(-float(self._products[k]), 0.0) * _VARIANCE[rate]

    def _share(self) -> None:
        if self._new > 0:
            shares, trust = (self._seen < 2) / self._new, 1.0
        else:
            shares = np.maximum(self._best, 0.0)
            total, squares = float(shares.dot(self._ones)), float(self._best.dot(self._best))
            noise = float(self._variances.dot(self._ones))
            trust = max(0.0, 1 - noise / squares) if total > 0 else 0.0
            shares /= total if total > 0 else 1.0
        sought = (1 - self._explore) * trust
        probabilities: NDArray[np.float64] = sought * shares
        probabilities += (1 - sought) / len(self._tasks)
        probabilities.setflags(write=False)
        self._probabilities = probabilities

    def diagnostics(self) -> dict[str, Any]:
        """Return the slopes and their standard errors by task."""
        errors = np.sqrt(self._variances)
        return {
            "slopes": dict(zip(self.tasks, self._best.tolist(), strict=True)),
            "errors": dict(zip(self.tasks, errors.tolist(), strict=True)),
        }

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, f"_{name}").tolist() for name in _ARRAYS}

    def _load(self, state: Mapping[str, Any]) -> None:
        for name in _ARRAYS:
            dtype = getattr(self, f"_{name}").dtype
            setattr(self, f"_{name}", np.array(state[name], dtype=dtype))
        self._new = int((self._seen < 2).sum())
        for k in range(len(self.tasks)):
            self._settle(k)
        self._share()


_ARRAYS = ("levels", "slopes", "errors", "seen", "newest", "rises", "products")
