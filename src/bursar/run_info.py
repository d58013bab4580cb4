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
    """

    sizes: Mapping[str, int]
    steps: int
    batch: int

    @property
    def tasks(self) -> list[str]:
        """The task names, in order."""
        return list(self.sizes)
