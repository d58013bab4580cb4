"""A distribution that changes over the run by a fixed schedule."""

import math
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from taskmix.policies.base import Policy, distribution, in_order
from taskmix.policies.state import Array
from taskmix.run_info import RunInfo


class Schedule(Policy):
    """Interpolates between the distributions of several phases of the run.

    It generalises the counterfactual policy of Glover and Hokamp (2019), which has one distribution
    for the whole run. The phases have equal lengths. The centre of a phase uses the distribution of
    the phase; between two centres it is interpolated linearly, in 256 steps; before the first
    centre and after the last it is constant.

    Args:
        phases: the probability of each task in each phase; they sum to 1, within 1e-6.
        steps: the total number of draws in all phases.

    >>> from taskmix.rng import stream
    >>> policy = Schedule([{"cola": 1.0, "rte": 0.0}, {"cola": 0.0, "rte": 1.0}], steps=4)
    >>> rng = stream(1, "draws")
    >>> [round(float(policy.ask(rng).probabilities[1]), 2) for _ in range(5)]
    [0.0, 0.0, 0.5, 1.0, 1.0]
    """

    name = "schedule"

    def __init__(self, phases: Sequence[Mapping[str, float]], steps: int) -> None:
        if not phases:
            raise ValueError("phases: expected at least one, found none")
        super().__init__(list(phases[0]))
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, found {steps}")
        self._phases = np.stack([self._phase(phase, i) for i, phase in enumerate(phases)])
        self._changes = np.diff(self._phases, axis=0, append=self._phases[-1:])
        self._steps = steps
        self._position = -1.0
        self._probabilities = np.empty(0)

    @classmethod
    def for_run(
        cls, info: RunInfo, phases: Sequence[Mapping[str, float]], steps: int | None = None
    ) -> Self:
        ordered = [in_order(p, info.tasks, f"phases[{i}]") for i, p in enumerate(phases)]
        return cls(ordered, info.steps if steps is None else steps)

    def _phase(self, phase: Mapping[str, float], i: int) -> Array:
        values = list(in_order(phase, self.tasks, f"phases[{i}]").values())
        if not abs(sum(values) - 1) <= 1e-6:
            raise ValueError(f"phases[{i}]: expected a sum of 1, found {sum(values)}")
        return distribution(np.array(values, dtype=np.float64), f"phases[{i}]")

    def probabilities(self) -> Array:
        # In phases from the first centre, which is half a phase after the start.
        position = self.draws / self._steps * len(self._phases) - 0.5
        position = math.floor(min(max(position, 0.0), len(self._phases) - 1.0) * 256) / 256
        if position != self._position:
            self._position = position
            before = int(position)
            self._probabilities = (position - before) * self._changes[before]
            self._probabilities += self._phases[before]
            self._probabilities.flags.writeable = False
        return self._probabilities
