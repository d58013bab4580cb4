"""Numbers by task over the steps of a run, taken out of its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taskmix.report.curves import MOST, Floats, held_means
from taskmix.report.history import History


@dataclass(frozen=True, eq=False)
class Timeline:
    """A number for each task that holds from a step until the next.

    Args:
        steps: rising, shape `(changes,)`.
        values: shape `(changes, tasks)`.
        end: the step up to which the last row holds.
    """

    steps: Floats
    values: Floats
    end: float

    def mean(self) -> Floats:
        """Over all steps, shape `(tasks,)`."""
        means: Floats = self.binned(1)[1][0]
        return means

    def binned(self, bins: int) -> tuple[Floats, Floats]:
        """Return the edges of equal bins, shape `(bins + 1,)`, and the means in them."""
        edges = np.linspace(self.steps[0], max(self.end, self.steps[0] + 1), bins + 1)
        return edges, held_means(self.steps, self.values, edges)

    def corners(self, most: int = MOST) -> tuple[Floats, Floats]:
        """Where it changes and to what, its end included; means over bins if that is too many."""
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
    """Return each task's part in the training: shares asked where there are, else what it got."""
    if history.shares:
        return asked(history)
    return _timeline(history, [(record.step, record.shares()) for record in history.units])


def uncertainties(history: History) -> Timeline | None:
    """Return what the policy held each task's uncertainty to be."""
    rows = [
        (record.step, record.values["uncertainties"])
        for record in history.diagnostics
        if _are_numbers(record.values.get("uncertainties"))
    ]
    return _timeline(history, rows)


def _are_numbers(found: object) -> bool:
    """Return whether these are numbers by task, at least one."""
    if not isinstance(found, Mapping) or not found:
        return False
    return all(isinstance(value, (int, float)) for value in found.values())


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
    points: dict[str, list[tuple[int, float]]] = {task: [] for task in history.tasks}
    for unit in history.units:
        for task, loss in unit.training_losses().items():
            points[task].append((unit.step, loss))
    return {task: _series(rows) for task, rows in points.items() if rows}


def _series(rows: Sequence[tuple[int, float]]) -> Series:
    steps, values = np.array(rows, dtype=np.float64).T
    return Series(steps, values)


def dev_scores_of(history: History, task: str) -> Series:
    """Return a task's dev scores."""
    return _series([(record.step, record.scores[task]) for record in history.evaluations])


def dev_losses_of(history: History, task: str) -> Series:
    """Return a task's dev losses."""
    return _series([(record.step, record.losses[task]) for record in history.evaluations])


def run_scores(history: History) -> Series:
    """Return the run's dev scores, each the mean over its tasks."""
    return _series([(record.step, record.score) for record in history.evaluations])
