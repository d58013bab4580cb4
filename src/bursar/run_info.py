"""What a run tells its decider."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a policy or selector may know of the run it serves when a run file names it.

    Args:
        sizes: training examples of each task; its keys are the tasks, in order.
        steps: the budget in optimiser steps.
        batch: examples in a batch.
        objective: the tasks that the run is scored on; all if empty.
    """

    sizes: Mapping[str, int]
    steps: int
    batch: int
    objective: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[str]:
        """The task names, in order."""
        return list(self.sizes)

    @property
    def targets(self) -> tuple[str, ...]:
        """The tasks that the run is scored on."""
        return self.objective or tuple(self.sizes)
