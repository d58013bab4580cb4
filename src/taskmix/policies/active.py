"""Active prioritization: more batches for the tasks that the model is unsure of."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Draw, Outcome, Policy, distribution
from taskmix.policies.signals import Score, Signal, Uncertainty


class ActivePrioritization(Policy):
    """Draws tasks in proportion to the model's uncertainty on their dev sets.

    Algorithm 1 of Fang and Alqatari (2020). Every f draws the uncertainty u_k of each task is
    estimated by Monte-Carlo dropout and smoothed, v_k ← γ v_k + (1 - γ) u_k, the first estimate as
    it is; then p_k = v_k / Σ_j v_j. Uniform while nothing is known or all is zero. The paper's
    equation 1 has γ on the new estimate; its text and the authors' code have it on the past.
    An estimate that comes after that of a later draw is out of date and is left out.

    Args:
        tasks: the names of the tasks.
        every: f, the draws between two estimates.
        passes: dropout masks in an estimate.
        smoothing: γ, the weight of the past; 0 takes each estimate as it is.
        limit: no task falls below this part of its uniform share. The authors name the neglect of
            easy tasks as their open problem; None lets them be neglected.
        examples: dev examples of each task in an estimate, the same ones each time; all if None.
        score: what is measured; see `Uncertainty`.

    >>> from taskmix.rng import stream
    >>> policy, rng = ActivePrioritization(["sst2", "rte"], every=1, limit=0.5), stream(1, "draws")
    >>> policy.tell(Outcome(policy.ask(rng), uncertainty={"sst2": 0.1, "rte": 0.3}))
    >>> policy.probabilities().round(6).tolist()
    [0.25, 0.75]
    >>> policy.tell(Outcome(policy.ask(rng), uncertainty={"sst2": 0.0, "rte": 0.9}))
    >>> policy.probabilities().round(6).tolist()
    [0.25, 0.75]
    """

    name = "active"

    def __init__(
        self,
        tasks: Sequence[str],
        every: int = 200,
        passes: int = 8,
        smoothing: float = 0.5,
        limit: float | None = None,
        examples: int | None = None,
        score: Score = "bald",
    ) -> None:
        super().__init__(tasks)
        if every < 1 or passes < 1:
            raise ValueError(f"every, passes: expected at least 1, found {every}, {passes}")
        if not 0 <= smoothing < 1 or not (limit is None or 0 <= limit <= 1):
            raise ValueError(
                "smoothing, limit: expected 0 <= smoothing < 1 and 0 <= limit <= 1,"
                f" found {smoothing}, {limit}"
            )
        if examples is not None and examples < 1:
            raise ValueError(f"examples: expected at least 1, or None for all, found {examples}")
        if score not in get_args(Score):
            raise ValueError(
                f"score: expected one of {', '.join(get_args(Score))}, found {score!r}"
            )
        self.needs = frozenset({Uncertainty(passes, examples, score)})
        self._every = every
        self._smoothing = smoothing
        self._limit = 0.0 if limit is None else limit
        self._uncertainties: dict[str, float] = {}
        self._newest = 0
        self._prioritize()

    def probabilities(self) -> NDArray[np.float64]:
        """Return the smoothed uncertainties, normalised, as far as the limit lets it go."""
        return self._probabilities

    def due(self, draw: Draw) -> frozenset[Signal]:
        """Return the uncertainties, once in `every` draws."""
        return self.needs if draw.number % self._every == 0 else frozenset()

    def tell(self, outcome: Outcome) -> None:
        """Learn from the uncertainties, if they were measured."""
        if outcome.uncertainty is None or outcome.draw.number <= self._newest:
            return
        self._newest = outcome.draw.number
        for task in self.tasks:
            value = outcome.uncertainty.get(task)
            if value is not None and math.isfinite(value) and value >= 0:
                past = self._uncertainties.get(task, value)
                self._uncertainties[task] = self._smoothing * past + (1 - self._smoothing) * value
        self._prioritize()

    def _prioritize(self) -> None:
        known = self._uncertainties.values()
        largest = max(known, default=0.0)
        if largest == 0:
            priorities = np.ones(len(self.tasks))
        else:
            # A task without an estimate stands in the middle of those that have one.
            middle = sum(value / largest for value in known) / len(known)
            priorities = np.array(
                [
                    self._uncertainties[task] / largest if task in self._uncertainties else middle
                    for task in self.tasks
                ]
            )
        self._probabilities = distribution(self._limited(priorities / priorities.sum()), "shares")

    def _limited(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        least = self._limit / len(shares)
        if shares.min() >= least:
            return shares
        above = np.maximum(shares - least, 0.0)
        # All that lies above the least share is scaled down, so that nobody else falls below it.
        limited: NDArray[np.float64] = least + above * ((1 - self._limit) / above.sum())
        return limited

    def diagnostics(self) -> dict[str, Any]:
        """Return the smoothed uncertainties by task."""
        return {"uncertainties": dict(self._uncertainties)}

    def _state(self) -> dict[str, Any]:
        return {"uncertainties": dict(self._uncertainties), "newest": self._newest}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._newest = state["newest"]
        self._uncertainties = dict(state["uncertainties"])
        self._prioritize()
