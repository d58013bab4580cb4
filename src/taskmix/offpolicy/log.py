"""The logged draws of a run, their distributions and rewards."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taskmix.errors import UserError
from taskmix.journal import (
    MAX_FULL_TASKS,
    Extended,
    Opening,
    Shares,
    Step,
    journal_of,
    read_latest,
)
from taskmix.policies.signals import Draw, Outcome
from taskmix.policies.state import Array
from taskmix.run_info import RunInfo

#: Returns the reward of each of a run's steps, given in order.
Reward = Callable[[Sequence[Step]], Array]
#: The measurements that are replayed on policies; the counts are whole numbers.
_REPLAYED = ("loss", "gain", "reward", "spread", "mute", "advantage")
_COUNTS = ("examples", "tokens")


def room_left(steps: Sequence[Step]) -> Array:
    """Return 1 minus the likelihood of each step's batch if its task improved, else 0.

    Glover and Hokamp (2019), equation 16: r = 1 - exp(-L) if the loss L is below that of the task's
    previous draw, else 0. A task's first draw counts as improved.

    >>> losses = [0.7, 0.5, 0.6]
    >>> steps = [Step(i, "a", p=0.5, loss=loss) for i, loss in enumerate(losses)]
    >>> room_left(steps).round(3).tolist()
    [0.503, 0.393, 0.0]
    """
    _, actions = np.unique([step.task for step in steps], return_inverse=True)
    return room_left_of(actions, _signal(steps, "loss"))


def room_left_of(actions: NDArray[np.int64], losses: Array) -> Array:
    """Compute `room_left` from the task and the loss of each step, both of shape `(steps,)`."""
    order = np.argsort(actions, kind="stable")
    task, loss = actions[order], losses[order]
    improved = np.ones(len(order), dtype=np.bool_)
    improved[1:] = (task[1:] != task[:-1]) | (loss[1:] < loss[:-1])
    rewards = np.empty(len(order))
    # A density can exceed 1, so the loss of a regression can fall below 0: the reward is 0 then.
    rewards[order] = np.where(improved, -np.expm1(-np.maximum(loss, 0.0)), 0.0)
    return rewards


def prediction_gain(steps: Sequence[Step]) -> Array:
    """Return how much each step lowered the loss of its own batch (Graves et al. 2017)."""
    return _signal(steps, "gain")


def mean_reward(steps: Sequence[Step]) -> Array:
    """Return the mean reward of the completions of each step (see `taskmix.Rewards`)."""
    return _signal(steps, "reward")


def absolute_advantage(steps: Sequence[Step]) -> Array:
    """Return the mean absolute advantage of each step's completions (Chen et al. 2025, SEC)."""
    return _signal(steps, "advantage")


def usual_reward(steps: Sequence[Step]) -> Array:
    """Return `mean_reward` if the steps have rewards and no losses, otherwise `room_left`."""
    rewarded = all(step.loss is None and step.reward is not None for step in steps)
    return mean_reward(steps) if rewarded else room_left(steps)


def _signal(steps: Sequence[Step], name: str) -> Array:
    for step in steps:
        if getattr(step, name) is None:
            found = ", ".join(step.measured()) or "nothing"
            raise UserError(
                f"step {step.step}: expected a measured {name} for the reward, found {found}"
            )
    return np.array([getattr(step, name) for step in steps], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Course:
    """The logging policy's distribution at every step, stored as one row for each change.

    Args:
        starts: the first step of each row, the first one 0, shape `(rows,)`.
        rows: the distributions, shape `(rows, tasks)`.

    >>> course = Course(np.array([0, 3]), np.array([[0.5, 0.5], [0.9, 0.1]]))
    >>> course.mean(steps=4).round(3).tolist()
    [0.6, 0.4]
    """

    starts: NDArray[np.int64]
    rows: Array

    def of(self, actions: NDArray[np.int64]) -> Array:
        """Return the probability of the action at each step, both of shape `(steps,)`."""
        row = np.searchsorted(self.starts, np.arange(len(actions)), side="right") - 1
        chosen: Array = self.rows[row, actions]
        return chosen

    def mean(self, steps: int) -> Array:
        """Return the mean distribution over the steps, shape `(tasks,)`."""
        lengths = np.diff(np.append(self.starts, steps))
        mean: Array = lengths @ self.rows / steps
        return mean

    def mean_inverse(self, steps: int) -> Array:
        """Return the mean of 1 / π_t(k) over the steps for each task, shape `(tasks,)`."""
        with np.errstate(divide="ignore"):
            return Course(self.starts, 1 / self.rows).mean(steps)

    def always(self) -> NDArray[np.bool_]:
        """Return which tasks could be drawn at every step, shape `(tasks,)`."""
        return np.asarray((self.rows > 0).all(axis=0))


def _info_of(opening: Opening, draws: int) -> RunInfo:
    """Return what a policy is told of the run, from the first line of its journal."""
    # Loops of other libraries do not tell their budget: it is the draws that they made.
    sizes = {task: opening.sizes.get(task, 1) for task in opening.tasks}
    steps, batch = opening.budget.get("steps", draws), opening.budget.get("batch", 1)
    return RunInfo(sizes, steps, batch, tuple(opening.objective or ()), opening.batches or {})


class Log:
    """The draws of one run: tasks, propensities and rewards.

    The setting of Glover and Hokamp (2019, section 3.3): (a_t, π_t(a_t), r_t) for each step t.

    Args:
        tasks: the names of the tasks.
        actions: the task drawn at each step, as its index in `tasks` or its name, shape `(steps,)`.
        probabilities: the distribution of each draw, shape `(steps, tasks)`, or a `Course` of
            distributions; or only the propensity of each draw, shape `(steps,)`.
        rewards: the reward of each step, shape `(steps,)`.
        propensities: the exact propensities of the draws, if the rows of a `Course` are
            approximate; shape `(steps,)`.
        decisions: a number for each step, equal for the steps of one decision (a round of Thompson
            sampling); standard errors count decisions, not steps. Shape `(steps,)`.
        measured: measurements of `taskmix.Outcome` by name, such as `loss`, which are told to a
            policy that learns; NaN where there was none. Each of shape `(steps,)`.
        info: the sizes and the budget of the run, from which a policy that is named is made.

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
        measured: Mapping[str, ArrayLike] | None = None,
        info: RunInfo | None = None,
    ) -> None:
        self.tasks = tuple(tasks)
        self.info = info
        self.actions = _indices(actions, self.tasks)
        self.rewards = _finite(rewards, "rewards", len(self.actions))
        self.course, chosen = _distributions(probabilities, self.actions, len(self.tasks))
        self.propensities = _propensities(chosen if propensities is None else propensities, self)
        self.decisions: NDArray[np.int64] = np.arange(len(self.actions))
        if decisions is not None:
            self.decisions = np.unique(np.asarray(decisions), return_inverse=True)[1]
        for name in measured or {}:
            if name not in _REPLAYED + _COUNTS:
                names = ", ".join(_REPLAYED + _COUNTS)
                raise ValueError(f"measured: expected some of {names}, found {name!r}")
        self.measured = {
            name: _measured(values, name, len(self.actions))
            for name, values in (measured or {}).items()
        }

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        return f"Log({len(self)} steps, {len(self.tasks)} tasks, mean {self.rewards.mean():.4g})"

    @classmethod
    def from_journal(cls, path: Path | str, reward: Reward = usual_reward) -> Self:
        """Read the log of a run; raise `UserError` if its draws contradict each other.

        Args:
            path: a run folder, or the journal in it.
            reward: computes the rewards from the run's steps; `usual_reward` is `mean_reward` for
                journals of reinforcement learning, `room_left` for others.
        """
        path = journal_of(path)
        opening: Opening | None = None
        steps: list[Step] = []
        starts: list[int] = []
        rows: list[list[float]] = []
        for record in read_latest(path):
            if isinstance(record, Opening):
                opening = record
            elif isinstance(record, Extended) and opening is not None:
                opening = replace(opening, budget=record.budget)
            elif isinstance(record, Shares):
                starts.append(len(steps))
                rows.append(record.shares)
            elif isinstance(record, Step):
                steps.append(record)
        if opening is None or not steps:
            raise UserError(f"{path}: expected draws to learn from, found none")
        if not rows or starts[0] > 0:
            raise UserError(f"{path}: expected the distribution before the first draw, found none")
        course = Course(np.array(starts), np.array(rows))
        _check_numbers(path, opening, steps)
        _check_propensities(path, opening, steps, course)
        try:
            rewards = reward(steps)
        except UserError as error:
            raise UserError(f"{path}, {error}") from None
        return cls(
            opening.tasks,
            [step.task for step in steps],
            course,
            rewards,
            propensities=[step.p for step in steps],
            decisions=_decisions(steps),
            measured={
                name: np.array([getattr(step, name) for step in steps], dtype=np.float64)
                for name in _REPLAYED + _COUNTS
            },
            info=_info_of(opening, len(steps)),
        )

    @cached_property
    def always(self) -> NDArray[np.bool_]:
        """Which tasks could be drawn at every step, as far as is known, shape `(tasks,)`."""
        if self.course is not None:
            return self.course.always()
        # A propensity of 1 says that no other task could be drawn.
        certain = np.unique(self.actions[self.propensities >= 1 - 1e-12])
        always = np.ones(len(self.tasks), dtype=np.bool_)
        for action in certain:
            always &= np.arange(len(self.tasks)) == action
        return always

    def has(self, name: str) -> bool:
        """Return whether a measurement was made at any step."""
        return name in self.measured and bool(np.isfinite(self.measured[name]).any())

    def outcome(self, step: int, draw: Draw) -> Outcome:
        """Return what was measured at a step, as the outcome of a draw."""
        values = {name: float(column[step]) for name, column in self.measured.items()}
        measured: dict[str, Any] = {
            name: int(value) if name in _COUNTS else value
            for name, value in values.items()
            if math.isfinite(value)
        }
        return Outcome(draw, **measured)

    def mean_inverse(self) -> Array:
        """Return the mean of 1 / π_t(k), estimated if only propensities are known; `(tasks,)`."""
        if self.course is not None:
            return self.course.mean_inverse(len(self))
        squares = np.bincount(self.actions, self.propensities**-2.0, len(self.tasks))
        return np.asarray(squares / len(self))

    def drawn(self) -> NDArray[np.int64]:
        """Return how often each task was drawn, shape `(tasks,)`."""
        return np.bincount(self.actions, minlength=len(self.tasks))

    def reordered(self, tasks: Sequence[str]) -> "Log":
        """Return the log with its tasks in this order."""
        if tuple(tasks) == self.tasks:
            return self
        if set(tasks) != set(self.tasks):
            raise UserError(
                f"logs: expected the same tasks in all of them, found {list(tasks)} and "
                f"{list(self.tasks)}"
            )
        order = [self.tasks.index(task) for task in tasks]
        distributions: Array | Course = self.propensities
        if self.course is not None:
            distributions = Course(self.course.starts, self.course.rows[:, order])
        return Log(
            tasks,
            np.argsort(order)[self.actions],
            distributions,
            self.rewards,
            propensities=self.propensities,
            decisions=self.decisions,
            measured=self.measured,
            info=self.info,
        )


def _check_numbers(path: Path, opening: Opening, steps: Sequence[Step]) -> None:
    # A run numbers its steps without gaps. The outcomes of a mixer may arrive in any order, and
    # those without a finite loss are left out.
    numbers = [step.step for step in steps]
    if "steps" in opening.budget:
        for before, number in pairwise(numbers):
            if number != before + 1:
                raise UserError(
                    f"{path}: expected step {before + 1} after step {before}, found step {number}"
                )
    elif len(set(numbers)) < len(numbers):
        twice = next(number for number, count in Counter(numbers).items() if count > 1)
        raise UserError(f"{path}: expected each draw once, found draw {twice} twice")


def _check_propensities(
    path: Path, opening: Opening, steps: Sequence[Step], course: Course
) -> None:
    if len(opening.tasks) > MAX_FULL_TASKS or any(b.step <= a.step for a, b in pairwise(steps)):
        return  # not every change of the distribution is in the journal
    place = {task: k for k, task in enumerate(opening.tasks)}
    shares = course.of(np.array([place[step.task] for step in steps]))
    for step, share in zip(steps, shares.tolist(), strict=True):
        if not math.isclose(step.p, share, rel_tol=1e-6, abs_tol=1e-9):
            raise UserError(
                f"{path}, step {step.step}: expected the probability {share:.6g} of {step.task}, "
                f"as in the distribution before it, found {step.p:.6g}"
            )


def _decisions(steps: Sequence[Step]) -> NDArray[np.int64] | None:
    """Number the rounds of the steps: a dev score ends a round, and a round has one task."""
    scored = np.array([step.score is not None for step in steps])
    if not scored.any():
        return None
    names = np.array([step.task for step in steps])
    starts = np.ones(len(steps), dtype=np.int64)
    starts[1:] = scored[:-1] | (names[1:] != names[:-1])
    return np.cumsum(starts)


def _indices(actions: ArrayLike, tasks: tuple[str, ...]) -> NDArray[np.int64]:
    array = np.asarray(actions)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"actions: expected the shape (steps,), found {array.shape}")
    if array.dtype.kind == "U":
        place = {task: k for k, task in enumerate(tasks)}
        unknown = sorted(set(array.tolist()) - set(tasks))
        if unknown:
            raise ValueError(f"actions: expected tasks of {list(tasks)}, found {unknown[0]!r}")
        return np.array([place[name] for name in array.tolist()], dtype=np.int64)
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= len(tasks):
        raise ValueError(
            f"actions: expected whole numbers from 0 to {len(tasks) - 1}, found "
            f"{array.dtype} from {array.min()} to {array.max()}"
        )
    return array.astype(np.int64)


def _finite(values: ArrayLike, what: str, steps: int) -> Array:
    array = _measured(values, what, steps)
    if not np.all(np.isfinite(array)):
        step = int(np.argmin(np.isfinite(array)))
        raise ValueError(f"{what}, step {step}: expected a finite number, found {array[step]}")
    return array


def _measured(values: ArrayLike, what: str, steps: int) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (steps,):
        raise ValueError(f"{what}: expected the shape ({steps},), found {array.shape}")
    return array


def _distributions(
    probabilities: ArrayLike | Course, actions: NDArray[np.int64], tasks: int
) -> tuple[Course | None, Array]:
    """Return the distributions, if they are known, and the probability of each action."""
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


def _propensities(values: ArrayLike, log: Log) -> Array:
    propensities = _finite(values, "propensities", len(log))
    wrong = (propensities <= 0) | (propensities > 1 + 1e-9)
    if np.any(wrong):
        step = int(np.argmax(wrong))
        raise ValueError(
            f"propensities, step {step}: expected a probability above 0 for the task drawn, "
            f"{log.tasks[log.actions[step]]}, found {propensities[step]}"
        )
    return propensities
