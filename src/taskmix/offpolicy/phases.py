"""A distribution for each phase of a run, from the learning curves of a log."""

import numpy as np

from taskmix.offpolicy.sample import Sample
from taskmix.offpolicy.solvers import Solver, Totals
from taskmix.policies.state import Array

#: The number of updates of the distribution within a phase.
UPDATES = 4


def phase_distributions(sample: Sample, entropy_weight: float, solve: Solver, phases: int) -> Array:
    """Return a distribution for each phase, shape `(phases, tasks)`, from a simulated run."""
    # Rewards change while a task is learned, and the policy may draw a task more often than the
    # logger. So the reward is a function of the earlier draws of its task, not of the step. At each
    # update, the distribution maximises V + λH for the present rewards, and each task advances by
    # its expected draws.
    curves = _Curves(sample, width=max(5.0, 2 * (_longest_run(sample) / len(sample.tasks)) ** 0.5))
    draws = _longest_run(sample) / (phases * UPDATES)
    reached = np.zeros(len(sample.tasks))
    rows = np.empty((phases * UPDATES, len(sample.tasks)))
    for row in rows:
        row[:] = solve(Totals(np.ones(len(reached)), curves.at(reached)), entropy_weight)
        reached += draws * row
    means: Array = rows.reshape(phases, UPDATES, -1).mean(axis=1)
    return means


def _longest_run(sample: Sample) -> int:
    return int(sample.positions.max()) + 1


class _Curves:
    """The mean reward of each task as a function of its earlier draws."""

    # After the last draw in the log, the mean falls along the task's trend, so that further draws
    # are not overrated. A task that was never drawn has the mean reward of all draws.

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

    def at(self, reached: Array) -> Array:
        """Return the reward of each task after `reached` draws of it, shape `(tasks,)`."""
        first = reached - self._width / 2
        last_first = np.maximum(self._ends - self._width, 0.0)
        seen = np.clip(first, 0.0, last_first)
        base = np.arange(len(reached)) * self._stride
        low = np.searchsorted(self._keys, base + np.ceil(seen))
        high = np.searchsorted(self._keys, base + np.minimum(seen + self._width, self._stride - 1))
        means = np.full(len(reached), self._mean)
        np.divide(self._sums[high] - self._sums[low], high - low, out=means, where=high > low)
        fallen = means + self._slopes * np.maximum(first - last_first, 0.0)
        floored: Array = np.maximum(fallen, np.minimum(means, 0.0))
        return floored


def _falling_trends(sample: Sample) -> Array:
    """Return the slope of each task's rewards over its draws, 0 where they do not fall."""
    exposures = sample.exposures.astype(np.float64)
    means = sample.by_task(exposures) / np.maximum(sample.drawn(), 1)
    offsets = exposures - means[sample.actions]
    spread = sample.by_task(offsets**2)
    slopes = np.zeros(len(spread))
    np.divide(sample.by_task(offsets * sample.rewards), spread, out=slopes, where=spread > 0)
    return np.minimum(slopes, 0.0)
