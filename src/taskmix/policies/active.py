"""Active prioritization: prefers the tasks on which the model is uncertain."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from taskmix.policies.base import StoredPolicy, distribution
from taskmix.policies.signals import Draw, Outcome, Signal, Uncertainty
from taskmix.policies.state import Array
from taskmix.uncertainty.measure import UncertaintyScore, check_score


class ActivePrioritization(StoredPolicy):
    """Draws tasks in proportion to the model's uncertainty on their dev sets.

    Algorithm 1 of Fang and Alqatari (2020). Every f draws, Monte-Carlo dropout estimates the
    uncertainty u_k of each task. The estimates are smoothed, v_k ← γ v_k + (1 - γ) u_k, and
    p_k = v_k / Σ_j v_j. The distribution is uniform before the first estimate and while all
    estimates are 0. An estimate that arrives after that of a later draw is ignored.

    In the paper's equation 1, γ multiplies the new estimate; here, as in its text and in the
    authors' code, γ multiplies the past.

    Args:
        tasks: the names of the tasks.
        every: f, the number of draws between two estimates.
        passes: the number of dropout masks.
        smoothing: γ, the weight of the past; 0 uses only the latest estimate.
        limit: the minimum probability of a task, as a fraction of 1/N; no minimum if None. (The
            authors call the neglect of easy tasks an open problem.)
        examples: the number of dev examples of each task, the same ones every time; all if None.
        score: the measure of uncertainty; see `Uncertainty`.

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
    beliefs: ClassVar = {"uncertainties": "the highest uncertainty"}
    _saved = ("_uncertainties", "_newest")

    def __init__(
        self,
        tasks: Sequence[str],
        every: int = 200,
        passes: int = 8,
        smoothing: float = 0.5,
        limit: float | None = None,
        examples: int | None = None,
        score: UncertaintyScore = "bald",
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
        check_score(score)
        self.needs = frozenset({Uncertainty(passes, examples, score)})
        self._every = every
        self._smoothing = smoothing
        self._limit = 0.0 if limit is None else limit
        self._uncertainties: dict[str, float] = {}
        self._newest = 0
        self._prioritize()

    def due(self, draw: Draw) -> frozenset[Signal]:
        return self.needs if draw.number % self._every == 0 else frozenset()

    def tell(self, outcome: Outcome) -> None:
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
        largest = max(self._uncertainties.values(), default=0.0)
        if largest == 0:
            priorities = np.ones(len(self.tasks))
        else:
            # A task without an estimate gets the mean of those that have one.
            scaled = {task: value / largest for task, value in self._uncertainties.items()}
            mean = sum(scaled.values()) / len(scaled)
            priorities = np.array([scaled.get(task, mean) for task in self.tasks])
        self._probabilities = distribution(self._limited(priorities / priorities.sum()), "shares")

    def _limited(self, shares: Array) -> Array:
        least = self._limit / len(shares)
        if shares.min() >= least:
            return shares
        above = np.maximum(shares - least, 0.0)
        # Only the excess over the minimum is scaled down, so no other task falls below it.
        limited: Array = least + above * ((1 - self._limit) / above.sum())
        return limited

    def diagnostics(self) -> dict[str, Any]:
        return {"uncertainties": dict(self._uncertainties)}

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._prioritize()
