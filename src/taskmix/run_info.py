"""Facts about a run for its decider."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts about a run that a policy or selector of a run file is made from.

    Args:
        sizes: training examples of each task; its keys are the tasks, in order.
        steps: the budget in optimiser steps.
        batch: examples in a batch.
        objective: the tasks that the run is scored on; all if empty.
        batches: the batches in an epoch, for tasks whose batches do not have `batch` examples.

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
        """The number of epochs of each task if it got every batch of the budget."""
        batches = {task: size / self.batch for task, size in self.sizes.items()}
        batches.update(self.batches)
        return {task: self.steps / max(1.0, batches[task]) for task in self.sizes}
