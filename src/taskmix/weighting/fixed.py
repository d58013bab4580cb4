"""Baselines: one task alone, or all tasks jointly with equal weights."""

from collections.abc import Sequence

import numpy as np

from taskmix.weighting.base import Floats, Report, Weighting, Worker, check_fraction


class Joint(Weighting):
    """Trains all tasks jointly, each with the same weight.

    The multitask baseline of Kourdis et al. (2020): the mean of the tasks' losses.

    Args:
        tasks: the names of the tasks.
        target: the task whose dev score is reported; it has the same weight as the others.
        fraction: the fraction of each task's training data in a round.

    >>> Joint(["left", "right"], target="left")
    Joint(target left: left 0.500, right 0.500)
    """

    name = "joint"

    def __init__(self, tasks: Sequence[str], target: str, *, fraction: float = 1.0) -> None:
        super().__init__(tasks, target)
        check_fraction(fraction)
        self.fraction = fraction

    def weights(self) -> Floats:
        return np.full(len(self.tasks), 1 / len(self.tasks))

    def round(self, worker: Worker) -> Report:
        weights = self.weights()
        trained = worker.together(weights.tolist(), self.fraction)
        worker.keep()
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
        return np.array([float(task == self.target) for task in self.tasks])
