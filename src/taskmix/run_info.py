"""What a run tells its decider."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a policy or selector may know of the run it serves when a run file names it.

    Args:
        sizes: training examples of each task; its keys are the tasks, in order.
        steps: the budget in optimiser steps.
        batch: examples in a batch.
        objective: the tasks that the run is scored on; all if empty.
        batches: how many batches an epoch of each task has, where a batch is not `batch` examples.

    >>> RunInfo({"rte": 160, "cb": 8}, steps=100, batch=16).epochs
    {'rte': 10.0, 'cb': 100.0}
    """

    sizes: Mapping[str, int]
    steps: int
    batch: int
    objective: tuple[str, ...] = ()
    batches: Mapping[str, float] = field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
        """The task names, in order."""
        return list(self.sizes)

    @property
    def targets(self) -> tuple[str, ...]:
        """The tasks that the run is scored on."""
        return self.objective or tuple(self.sizes)

    @property
    def epochs(self) -> dict[str, float]:
        """How often each task's examples would be seen if it got every batch of the budget."""
        return {task: self.steps / self._batches(task) for task in self.sizes}

    def _batches(self, task: str) -> float:
        """Return how many batches an epoch of a task has."""
        return max(1.0, self.batches.get(task, self.sizes[task] / self.batch))
