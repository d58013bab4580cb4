"""A policy that changes in the course of training."""

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy.objective import Solver, Totals
from taskmix.offpolicy.pooling import Sample

#: How often the plan looks at the rewards within a phase.
LOOKS = 4


def planned(
    sample: Sample, entropy_weight: float, solve: Solver, phases: int
) -> NDArray[np.float64]:
    """Return a distribution for each phase, shape `(phases, tasks)`.

    A reward changes while a task is learned, so a policy that draws it more often than the log's
    did will find it further on at the same step. What a draw earns is therefore read off the log at
    the task's own number of draws so far, not at the clock. The plan walks through the run: at each
    look it takes the distribution that maximises V + λH for the rewards that the tasks have reached
    by then, and moves each task on by the draws that it gives it.
    """
    curves = _Curves(sample, width=max(5.0, 2 * (_steps(sample) / len(sample.tasks)) ** 0.5))
    draws = _steps(sample) / (phases * LOOKS)
    reached = np.zeros(len(sample.tasks))
    rows = np.empty((phases * LOOKS, len(sample.tasks)))
    for row in rows:
        row[:] = solve(Totals(np.ones(len(reached)), curves.at(reached)), entropy_weight)
        reached += draws * row
    means: NDArray[np.float64] = rows.reshape(phases, LOOKS, -1).mean(axis=1)
    return means


def _steps(sample: Sample) -> int:
    """Return the steps of the longest run in the sample."""
    return int(sample.positions.max()) + 1


class _Curves:
    """The mean reward of each task around any number of its own draws.

    Beyond the draws that the log has seen the last mean goes on along the task's trend if that is
    falling: where more of a task than ever before is being planned, its rewards are not to be
    taken for granted. A task that was never drawn earns what the mean draw did.
    """

    def __init__(self, sample: Sample, width: float) -> None:
        exposures = sample.exposures
        order = np.lexsort((exposures, sample.actions))
        self._stride = int(exposures.max()) + 2
        self._keys = sample.actions[order] * self._stride + exposures[order]
        self._sums = np.concatenate([[0.0], np.cumsum(sample.rewards[order])])
        self._ends = np.zeros(len(sample.tasks))
        np.maximum.at(self._ends, sample.actions, exposures + 1.0)
        self._width = width
        self._slopes = _falling_trends(sample)
        self._mean = float(sample.rewards.mean())

    def at(self, reached: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the reward of each task after so many draws of it, shape `(tasks,)`."""
        first = reached - self._width / 2
        last_first = np.maximum(self._ends - self._width, 0.0)
        seen = np.clip(first, 0.0, last_first)
        base = np.arange(len(reached)) * self._stride
        low = np.searchsorted(self._keys, base + np.ceil(seen))
        high = np.searchsorted(self._keys, base + np.minimum(seen + self._width, self._stride - 1))
        means = np.full(len(reached), self._mean)
        np.divide(self._sums[high] - self._sums[low], high - low, out=means, where=high > low)
        fallen = means + self._slopes * np.maximum(first - last_first, 0.0)
        floored: NDArray[np.float64] = np.maximum(fallen, np.minimum(means, 0.0))
        return floored


def _falling_trends(sample: Sample) -> NDArray[np.float64]:
    """For each task the slope of its rewards over its own draws, 0 where they do not fall."""
    exposures = sample.exposures.astype(np.float64)
    means = sample.by_task(exposures) / np.maximum(sample.drawn(), 1)
    offsets = exposures - means[sample.actions]
    spread = sample.by_task(offsets**2)
    slopes = np.zeros(len(spread))
    np.divide(sample.by_task(offsets * sample.rewards), spread, out=slopes, where=spread > 0)
    return np.minimum(slopes, 0.0)
