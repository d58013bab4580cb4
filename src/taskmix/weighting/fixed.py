"""The baselines: one task alone, or all tasks jointly with equal weights."""

from collections.abc import Sequence

import numpy as np

from taskmix.weighting.base import (
    Conversation,
    Floats,
    JointResult,
    Keep,
    Report,
    Together,
    Weighting,
)


class Joint(Weighting):
    """Trains all tasks jointly, each with the same weight.

    The multitask baseline of Kourdis et al. (2020): the mean of the tasks' losses.

    Args:
        tasks: the names of the tasks.
        target: the task whose dev score is reported; it gets no more weight than the others.
        fraction: share of each task's training data in a round.

    >>> Joint(["left", "right"], target="left")
    Joint(target left: left 0.500, right 0.500)
    """

    name = "joint"

    def __init__(self, tasks: Sequence[str], target: str, *, fraction: float = 1.0) -> None:
        super().__init__(tasks, target)
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction: expected a number above 0, at most 1, found {fraction}")
        self.fraction = fraction

    def weights(self) -> Floats:
        """1/n for each task."""
        return np.full(len(self.tasks), 1 / len(self.tasks))

    def round(self) -> Conversation:
        """Train jointly once and keep the outcome."""
        weights = self.weights()
        trained: JointResult = yield Together(tuple(weights.tolist()), self.fraction)
        yield Keep()
        losses = self.named(trained.losses)
        return Report(self.named(weights), losses, trained.dev_loss, tries=1)


class Single(Joint):
    """Trains the target alone; the other tasks are left out.

    The single-task baseline of Kourdis et al. (2020).

    >>> Single(["left", "right"], target="left")
    Single(target left: left 1.000, right 0.000)
    """

    name = "single"

    def weights(self) -> Floats:
        """1 for the target, 0 for the others."""
        return np.array([float(task == self.target) for task in self.tasks])
