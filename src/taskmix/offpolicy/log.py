"""What a finished run remembers of its decisions."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taskmix.errors import UserError
from taskmix.journal import Opening, Shares, Step, read_latest
from taskmix.offpolicy.course import Course
from taskmix.offpolicy.rewards import Reward, room_left


class Log:
    """The draws of one run: which task, with what probability, and what it earned.

    The setting of Glover and Hokamp (2019, section 3.3): (a_t, π_t(a_t), r_t) for each step t.

    Args:
        tasks: the names of the tasks.
        actions: the task drawn at each step, as its place in `tasks` or its name, shape `(steps,)`.
        probabilities: the distribution of each draw, shape `(steps, tasks)`, or a `Course` of
            distributions; or only each draw's own propensity, shape `(steps,)`.
        rewards: what each step earned, shape `(steps,)`.
        propensities: exact propensities of the draws where the `Course` was thinned out, shape
            `(steps,)`.
        decisions: a number for each step, the same where one draw held for several steps (a round
            of Thompson sampling); standard errors count decisions, not steps. Shape `(steps,)`.
        losses: the loss of each step, NaN where it was not measured, so that a policy that learns
            from it can be replayed. Shape `(steps,)`.
        gains: the prediction gain of each step, likewise. Shape `(steps,)`.

    >>> log = Log(["cola", "rte"], [0, 1, 1], [[0.5, 0.5]] * 3, [0.1, 0.4, 0.2])
    >>> len(log), log.propensities.tolist()
    (3, [0.5, 0.5, 0.5])
    """

    def __init__(
        self,
        tasks: Sequence[str],
        actions: ArrayLike,
        probabilities: ArrayLike | Course,
        rewards: ArrayLike,
        *,
        propensities: ArrayLike | None = None,
        decisions: ArrayLike | None = None,
        losses: ArrayLike | None = None,
        gains: ArrayLike | None = None,
    ) -> None:
        self.tasks = tuple(tasks)
        self.actions = _indices(actions, self.tasks)
        self.rewards = _finite(rewards, "rewards", len(self.actions))
        self.course, chosen = _distributions(probabilities, self.actions, len(self.tasks))
        self.propensities = _propensities(chosen if propensities is None else propensities, self)
        self.decisions: NDArray[np.int64] = np.arange(len(self.actions))
        if decisions is not None:
            self.decisions = np.unique(np.asarray(decisions), return_inverse=True)[1]
        self.losses = _measured(losses, "losses", len(self.actions))
        self.gains = _measured(gains, "gains", len(self.actions))

    def __len__(self) -> int:
        """How many steps were logged."""
        return len(self.actions)

    def __repr__(self) -> str:
        return f"Log({len(self)} steps, {len(self.tasks)} tasks, mean {self.rewards.mean():.4g})"

    @classmethod
    def from_journal(cls, path: Path | str, reward: Reward = room_left) -> Self:
        """Return the log of a run, from its folder or its journal.

        Args:
            path: a run folder, or the journal in it.
            reward: what a step was worth, as a function of the run's steps.
        """
        path = Path(path)
        path = path / "journal.jsonl" if path.is_dir() else path
        tasks: list[str] = []
        steps: list[Step] = []
        shares: list[tuple[int, list[float]]] = []
        for record in read_latest(path):
            if isinstance(record, Opening):
                tasks = record.tasks
            elif isinstance(record, Shares):
                shares.append((len(steps), record.shares))
            elif isinstance(record, Step):
                steps.append(record)
        if not steps or not shares:
            raise UserError(f"{path}: expected draws to learn from, found none")
        course = Course(
            np.array([start for start, _ in shares]), np.array([row for _, row in shares])
        )
        return cls(
            tasks,
            [step.task for step in steps],
            course,
            reward(steps),
            propensities=[step.p for step in steps],
            decisions=_decisions(steps),
            losses=np.array([step.loss for step in steps], dtype=np.float64),
            gains=np.array([step.gain for step in steps], dtype=np.float64),
        )

    @cached_property
    def always(self) -> NDArray[np.bool_]:
        """Which tasks could be drawn at every step, as far as the log knows, shape `(tasks,)`."""
        if self.course is not None:
            return self.course.always()
        # A propensity of 1 says that no other task could be drawn.
        certain = np.unique(self.actions[self.propensities >= 1 - 1e-12])
        always = np.ones(len(self.tasks), dtype=np.bool_)
        for action in certain:
            always &= np.arange(len(self.tasks)) == action
        return always

    def drawn(self) -> NDArray[np.int64]:
        """Return how often each task was drawn, shape `(tasks,)`."""
        return np.bincount(self.actions, minlength=len(self.tasks))

    def reordered(self, tasks: Sequence[str]) -> "Log":
        """Return the same log with its tasks in this order."""
        if tuple(tasks) == self.tasks:
            return self
        if set(tasks) != set(self.tasks):
            raise UserError(
                f"logs: expected the same tasks in all of them, found {list(tasks)} and "
                f"{list(self.tasks)}"
            )
        place = [self.tasks.index(task) for task in tasks]
        moved = np.argsort(place)[self.actions]
        given: NDArray[np.float64] | Course = self.propensities
        if self.course is not None:
            given = Course(self.course.starts, self.course.rows[:, place])
        return Log(
            tasks,
            moved,
            given,
            self.rewards,
            propensities=self.propensities,
            decisions=self.decisions,
            losses=self.losses,
            gains=self.gains,
        )


def _decisions(steps: Sequence[Step]) -> NDArray[np.int64] | None:
    """Return which steps one draw held for: a dev score ends a round, and a round has one task."""
    scored = np.array([step.score is not None for step in steps])
    if not scored.any():
        return None
    names = np.array([step.task for step in steps])
    starts = np.ones(len(steps), dtype=np.int64)
    starts[1:] = scored[:-1] | (names[1:] != names[:-1])
    return np.cumsum(starts)


def _indices(actions: ArrayLike, tasks: tuple[str, ...]) -> NDArray[np.int64]:
    given = np.asarray(actions)
    if given.ndim != 1 or len(given) == 0:
        raise ValueError(f"actions: expected the shape (steps,), found {given.shape}")
    if given.dtype.kind == "U":
        place = {task: k for k, task in enumerate(tasks)}
        unknown = sorted(set(given.tolist()) - set(tasks))
        if unknown:
            raise ValueError(f"actions: expected tasks of {list(tasks)}, found {unknown[0]!r}")
        return np.array([place[name] for name in given.tolist()], dtype=np.int64)
    if given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= len(tasks):
        raise ValueError(
            f"actions: expected whole numbers from 0 to {len(tasks) - 1}, found "
            f"{given.dtype} from {given.min()} to {given.max()}"
        )
    return given.astype(np.int64)


def _finite(values: ArrayLike, what: str, steps: int) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (steps,):
        raise ValueError(f"{what}: expected the shape ({steps},), found {array.shape}")
    if not np.all(np.isfinite(array)):
        step = int(np.argmin(np.isfinite(array)))
        raise ValueError(f"{what}, step {step}: expected a finite number, found {array[step]}")
    return array


def _measured(values: ArrayLike | None, what: str, steps: int) -> NDArray[np.float64]:
    """Measurements as an array, NaN for those that are not there."""
    if values is None:
        return np.full(steps, np.nan)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (steps,):
        raise ValueError(f"{what}: expected the shape ({steps},), found {array.shape}")
    return array


def _distributions(
    probabilities: ArrayLike | Course, actions: NDArray[np.int64], tasks: int
) -> tuple[Course | None, NDArray[np.float64]]:
    """Return the distributions, if they are all there, and the probability of each action."""
    if isinstance(probabilities, Course):
        course = probabilities
    else:
        rows = np.asarray(probabilities, dtype=np.float64)
        steps = len(actions)
        if rows.shape == (steps,):
            return None, rows
        if rows.shape != (steps, tasks):
            raise ValueError(
                f"probabilities: expected the shape ({steps}, {tasks}) or ({steps},), "
                f"found {rows.shape}"
            )
        course = Course(np.arange(steps), rows)
    if not np.all(np.abs(course.rows.sum(axis=1) - 1) < 1e-6) or np.any(course.rows < 0):
        raise ValueError("probabilities: expected rows that sum to 1 with nothing below 0")
    return course, course.of(actions)


def _propensities(values: ArrayLike, log: Log) -> NDArray[np.float64]:
    propensities = _finite(values, "propensities", len(log))
    wrong = (propensities <= 0) | (propensities > 1 + 1e-9)
    if np.any(wrong):
        step = int(np.argmax(wrong))
        raise ValueError(
            f"propensities, step {step}: expected a probability above 0 for the task drawn, "
            f"{log.tasks[log.actions[step]]}, found {propensities[step]}"
        )
    return propensities
