"""Numbers by task over the steps of a run, and long series made short enough to draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskmix.journal import Step
from taskmix.report.history import History

Floats = NDArray[np.float64]

MAX_POINTS = 600
"""Points in a curve, at most: about as many as a screen has pixels for."""
FIGURE_POINTS = 1200
"""Points in the curves of all tasks of a figure; with many tasks each gets fewer."""


def max_points(tasks: int, most: int = MAX_POINTS) -> int:
    """Return the points for each task's curve.

    >>> max_points(3), max_points(30)
    (400, 40)
    """
    return max(40, min(most, FIGURE_POINTS // max(1, tasks)))


def thinned(count: int, most: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return which of `count` points to draw: evenly spaced, the first and the last among them.

    >>> thinned(5).tolist(), thinned(9, most=3).tolist()
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).round().astype(np.int64)


def smoothed(values: Floats, window: int) -> Floats:
    """Return the mean over `window` points around each, over fewer at the ends.

    >>> smoothed(np.array([0.0, 3.0, 6.0, 0.0]), window=3).tolist()
    [1.5, 3.0, 3.0, 3.0]
    """
    half = window // 2
    places = np.arange(len(values))
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means: Floats = (sums[high] - sums[low]) / (high - low)
    return means


def held_means(starts: Floats, values: Floats, edges: Floats) -> Floats:
    """Return the means of a step function between edges, shape `(bins, tasks)`.

    Row k of `values` holds from `starts[k]` on; `edges` begin at the first start.

    >>> held_means(np.array([0.0, 1.0]), np.array([[0.0], [3.0]]), np.array([0.0, 3.0])).tolist()
    [[2.0]]
    """
    lengths = np.diff(np.append(starts, max(edges[-1], starts[-1])))
    areas = np.vstack([np.zeros(values.shape[1]), np.cumsum(values * lengths[:, None], axis=0)])
    corners = np.append(starts, max(edges[-1], starts[-1]))
    at_edges = np.stack([np.interp(edges, corners, column) for column in areas.T], axis=1)
    means: Floats = np.diff(at_edges, axis=0) / np.diff(edges)[:, None]
    return means


@dataclass(frozen=True, eq=False)
class Timeline:
    """A step function of the steps for each task."""

    steps: Floats  # rising, shape (changes,)
    values: Floats  # from each of these steps on, shape (changes, tasks)
    end: float  # of the last row

    def mean(self) -> Floats:
        """Return the mean over all steps, shape `(tasks,)`."""
        means: Floats = self.binned(1)[1][0]
        return means

    def binned(self, bins: int) -> tuple[Floats, Floats]:
        """Return the edges of equal bins, shape `(bins + 1,)`, and the means in them."""
        edges = np.linspace(self.steps[0], max(self.end, self.steps[0] + 1), bins + 1)
        return edges, held_means(self.steps, self.values, edges)

    def corners(self, most: int = MAX_POINTS) -> tuple[Floats, Floats]:
        """Return steps and values of all changes and of the end; means over bins if too many."""
        if len(self.steps) < most:
            return np.append(self.steps, self.end), np.vstack([self.values, self.values[-1]])
        edges, means = self.binned(most - 1)
        return edges, np.vstack([means, means[-1]])


def asked(history: History) -> Timeline | None:
    """Return the distributions that the draws came from."""
    if not history.shares:
        return None
    steps = np.array([record.step for record in history.shares], dtype=np.float64)
    values = np.array([record.shares for record in history.shares], dtype=np.float64)
    return Timeline(steps, values, history.end + 1)


def influence(history: History) -> Timeline | None:
    """Return the shares that a policy asked for, else the shares that the units had."""
    if history.shares:
        return asked(history)
    return _timeline(history, [(record.step, record.shares()) for record in history.units])


def uncertainties(history: History) -> Timeline | None:
    """Return the policy's estimates of each task's uncertainty."""
    rows = [
        (record.step, record.values["uncertainties"])
        for record in history.diagnostics
        if _are_numbers(record.values.get("uncertainties"))
    ]
    return _timeline(history, rows)


def _are_numbers(values: object) -> bool:
    if not isinstance(values, Mapping) or not values:
        return False
    return all(isinstance(value, (int, float)) for value in values.values())


def _timeline(history: History, rows: Sequence[tuple[int, Mapping[str, float]]]) -> Timeline | None:
    if not rows:
        return None
    steps = np.array([step for step, _ in rows], dtype=np.float64)
    values = np.array([[row.get(task, 0.0) for task in history.tasks] for _, row in rows])
    return Timeline(steps, values, history.end + 1)


@dataclass(frozen=True, eq=False)
class Series:
    """Numbers of one task at some steps, both of shape `(points,)`."""

    steps: Floats
    values: Floats


def training_losses(history: History) -> dict[str, Series]:
    """Return each task's training losses, for the tasks that have any."""
    return _by_task(history, [(unit.step, unit.training_losses()) for unit in history.units])


def measurements(history: History, name: str) -> dict[str, Series]:
    """Return a measurement of each task's draws, such as `reward`, where the draws have it."""
    steps = [unit for unit in history.units if isinstance(unit, Step)]
    measured = [(step, getattr(step, name)) for step in steps if getattr(step, name) is not None]
    return _by_task(history, [(step.step, {step.task: value}) for step, value in measured])


def _by_task(
    history: History, values: Sequence[tuple[int, Mapping[str, float]]]
) -> dict[str, Series]:
    points: dict[str, list[tuple[int, float]]] = {task: [] for task in history.tasks}
    for step, by_task in values:
        for task, value in by_task.items():
            points[task].append((step, value))
    return {task: _series(rows) for task, rows in points.items() if rows}


def _series(rows: Sequence[tuple[int, float]]) -> Series:
    steps, values = np.array(rows, dtype=np.float64).T
    return Series(steps, values)


def dev_scores_of(history: History, task: str) -> Series:
    return _series([(record.step, record.scores[task]) for record in history.evaluations])


def dev_losses_of(history: History, task: str) -> Series:
    return _series([(record.step, record.losses[task]) for record in history.evaluations])


def run_scores(history: History) -> Series:
    """Return the mean dev scores over the tasks."""
    return _series([(record.step, record.score) for record in history.evaluations])
