"""A distribution that changes by plan."""

import math
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Policy, distribution, in_order
from taskmix.run_info import RunInfo


class Schedule(Policy):
    """Draws from a planned course of distributions, one for each phase of the run.

    A counterfactual policy that may depend on time, where Glover and Hokamp (2019) learn one
    distribution for the whole run. The phases are of equal length. At the centre of a phase its
    distribution is drawn from; between centres the two neighbours are mixed linearly, in 256 steps,
    and before the first and after the last centre nothing changes.

    Args:
        phases: for each phase, by task, its probability; together 1, within 1e-6.
        steps: how many draws all phases take together.

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
        # After the last phase nothing changes.
        self._changes = np.diff(self._phases, axis=0, append=self._phases[-1:])
        self._steps = steps
        self._position = -1.0
        self._probabilities = np.empty(0)

    @classmethod
    def for_run(
        cls, info: RunInfo, phases: Sequence[Mapping[str, float]], steps: int | None = None
    ) -> Self:
        """Takes a probability for each task of the run in each phase, and the run's budget."""
        ordered = [in_order(p, info.tasks, f"phases[{i}]") for i, p in enumerate(phases)]
        return cls(ordered, info.steps if steps is None else steps)

    def _phase(self, phase: Mapping[str, float], i: int) -> NDArray[np.float64]:
        values = list(in_order(phase, self.tasks, f"phases[{i}]").values())
        if not abs(sum(values) - 1) <= 1e-6:
            raise ValueError(f"phases[{i}]: expected a sum of 1, found {sum(values)}")
        return distribution(np.array(values, dtype=np.float64), f"phases[{i}]")

    def probabilities(self) -> NDArray[np.float64]:
        """Return the mixture of the two phases whose centres are nearest."""
        # Measured in phases from the first centre, which lies half a phase after the start.
        position = self.draws / self._steps * len(self._phases) - 0.5
        position = math.floor(min(max(position, 0.0), len(self._phases) - 1.0) * 256) / 256
        if position != self._position:
            self._position = position
            before = int(position)
            self._probabilities = (position - before) * self._changes[before]
            self._probabilities += self._phases[before]
            self._probabilities.flags.writeable = False
        return self._probabilities
