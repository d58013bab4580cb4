"""The scores of a run beside the amount of training that each task had had by then."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.files import SCORES
from taskmix.journal import Evaluation, Extended, Opening, Step, journal_of, read_latest
from taskmix.policies.state import Array
from taskmix.records import Record, UnitRecord
from taskmix.schedule import rate_factor

Measure = Literal["score", "loss"]
#: The value of a repeated example falls as exp(-R / R*) with its repetitions R, R* = 15
#: (Muennighoff et al. 2023).
EPOCHS_OF_DECAY = 15.0
#: A step counts as one of these powers of its learning rate, relative to the highest one. With 0
#: a score that levels off as the rate falls looks learned; with 1 the last steps teach nothing.
RATE_POWERS = np.array([0.0, 0.5, 1.0])
#: Free scores are averaged over this many examples or more.
FREE_WINDOW = 64
#: Two scores of the same dev set that differ by less are equal.
SAME_SCORE = 1e-6
#: Places of the schedule at which the training of a planned run is summed up.
PLACES = 256


@dataclass(frozen=True)
class RateSchedule:
    """A budget, and the learning rate's course over it.

    Args:
        steps: the number of steps.
        batch: examples, or tokens, of a step.
        warmup: the share of the steps in which the rate rises; None for a constant rate.

    >>> RateSchedule(steps=100, batch=16, warmup=None).training(np.array([0.25, 1.0]))[0].tolist()
    [400.0, 1600.0]
    """

    steps: int
    batch: float
    warmup: float | None

    def weights(self, step: float) -> Array:
        """Return the weight of a step under each of the `RATE_POWERS`, shape `(powers,)`."""
        rate = 1.0 if self.warmup is None else rate_factor(step, self.steps, self.warmup)
        weights: Array = max(0.0, rate) ** RATE_POWERS
        return weights

    def training(self, shares: Array, epochs: float = 0.0) -> Array:
        """Return the effective training of a task by its share, shape `(powers, shares)`.

        Args:
            shares: the task's share of every step, shape `(shares,)`.
            epochs: of the task if it had all steps; 0 for no repetition.
        """
        places = (np.arange(PLACES) + 0.5) / PLACES
        weights = np.array([self.weights(place * self.steps + 0.5) for place in places])
        values = novelty(np.multiply.outer(shares * epochs, places))
        effective: Array = shares * (values @ weights).T * (self.steps * self.batch / PLACES)
        return effective


def novelty(epochs: Array) -> Array:
    """Return the value of an example after so many epochs, relative to a new one."""
    value: Array = np.exp(-np.maximum(epochs - 1.0, 0.0) / EPOCHS_OF_DECAY)
    return value


@dataclass(frozen=True, eq=False)
class FreeScores:
    """The scores of one task's batches before their steps, in its first epoch, averaged in windows.

    Args:
        training: the mean effective training of each window, shape `(powers, windows)`.
        values: the mean scores, shape `(windows,)`.
        examples: of each window, shape `(windows,)`.
    """

    training: Array
    values: Array
    examples: Array


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """The evaluations of a run beside the effective training of each task.

    Effective training is the number of examples (of tokens, if the budget counts these), each
    weighted by a power of the learning rate of its step and discounted for repetition: a score may
    be level because the rate has fallen to 0, not because the task is learned.

    Args:
        tasks: the names of the tasks.
        training: the effective training before each evaluation under each of the `RATE_POWERS`,
            shape `(powers, evaluations, tasks)`.
        values: the scores, or the negative losses, shape `(evaluations, tasks)`.
        shares: each task's probability under a policy that does not change, else its share of the
            steps, shape `(tasks,)`.
        epochs: of each task if it had all steps of the schedule, shape `(tasks,)`.
        dev: dev examples of each task; NaN if unknown, shape `(tasks,)`.
        schedule: the budget and the learning rate's course.
        targets: the tasks that the run is scored on.
        measure: whether the values are scores or negative losses.
        free: by task, the scores of its batches, where these were measured.
        baselines: by task, the score of its majority class, or of its mean, where it is known.
    """

    tasks: tuple[str, ...]
    training: Array
    values: Array
    shares: Array
    epochs: Array
    dev: Array
    schedule: RateSchedule
    targets: tuple[str, ...]
    measure: Measure = "score"
    free: Mapping[str, FreeScores] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_journal(cls, path: Path | str, measure: Measure | None = None) -> Self:
        """Read the evaluations on the dev sets from a journal.

        Args:
            path: a run folder, or the journal in it.
            measure: what to learn from; that of the run's objective if None.
        """
        path = journal_of(path)
        records = read_latest(path)
        opening = records[0] if records else None
        if not isinstance(opening, Opening) or opening.family == "weighting":
            raise UserError(f"{path}: expected the journal of a policy or a selector")
        measure = measure or opening.measure
        # Loops of other libraries do not tell their budget: it is what was spent.
        spent = {"steps": sum(isinstance(record, UnitRecord) for record in records)}
        reader = _Reader(replace(opening, budget=spent | opening.budget))
        for record in records[1:]:
            reader.add(record)
        if not reader.evaluations:
            raise UserError(
                f"{path}: expected evaluations to learn from, found none; "
                "`--from rewards` learns from single draws"
            )
        evaluated = [e.scores if measure == "score" else e.losses for e in reader.evaluations]
        sign = 1.0 if measure == "score" else -1.0
        dev = opening.dev or {}
        return cls(
            tuple(opening.tasks),
            np.stack(reader.training, axis=1),
            sign * np.array([[values[task] for task in opening.tasks] for values in evaluated]),
            reader.shares(),
            reader.epochs,
            np.array([dev.get(task, np.nan) for task in opening.tasks], dtype=np.float64),
            reader.schedule,
            tuple(opening.objective or opening.tasks),
            measure,
            reader.free_scores() if measure == "score" else {},
            _baselines(path.parent / SCORES) if measure == "score" else {},
        )

    def idle(self, task: str) -> NDArray[np.bool_]:
        """Return which scores are those of a model that predicts one class, `(evaluations,)`.

        Such a score equals the baseline, or all scores of the run before it.
        """
        values = self.values[:, self.tasks.index(task)]
        if self.measure == "loss":
            return np.zeros(len(values), dtype=np.bool_)
        constant = np.logical_and.accumulate(values == values[0])
        constant &= constant.sum() > 1
        return constant | (np.abs(values - self.baselines.get(task, np.nan)) < SAME_SCORE)

    def reordered(self, tasks: Iterable[str]) -> Self:
        """Return the run with its tasks in another order."""
        tasks = tuple(tasks)
        if sorted(tasks) != sorted(self.tasks):
            raise UserError(
                f"runs: expected the same tasks in all of them, found {', '.join(tasks)} and "
                f"{', '.join(self.tasks)}"
            )
        order = [self.tasks.index(task) for task in tasks]
        return replace(
            self,
            tasks=tasks,
            training=self.training[..., order],
            values=self.values[:, order],
            shares=self.shares[order],
            epochs=self.epochs[order],
            dev=self.dev[order],
        )


def _baselines(path: Path) -> dict[str, float]:
    """Return the baselines in a finished run's file of scores; none if there is no such file."""
    if not path.is_file():
        return {}
    try:
        tasks = json.loads(path.read_bytes())["tasks"]
        baselines = {task: scores["baseline"] for task, scores in tasks.items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        raise UserError(f"{path}: expected the scores of a finished run") from None
    return {task: float(value) for task, value in baselines.items() if value is not None}


class _Window:
    """Running means over consecutive batches of one task, weighted by their examples."""

    def __init__(self, powers: int) -> None:
        self.examples = 0
        self.score = 0.0
        self.training = np.zeros(powers)

    def add(self, examples: int, score: float, training: Array) -> None:
        self.examples += examples
        part = examples / self.examples
        self.score += part * (score - self.score)
        self.training += part * (training - self.training)


class _Reader:
    """Sums up the training of each task, record by record."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._index = {task: k for k, task in enumerate(opening.tasks)}
        self.schedule = self._schedule(opening.budget)
        self.drawn: NDArray[np.float64] = np.zeros(len(opening.tasks))  # steps of each task
        self.training: list[Array] = []  # at the evaluations, (powers, tasks) each
        self.evaluations: list[Evaluation] = []
        self._training = np.zeros((len(RATE_POWERS), len(opening.tasks)))
        self._per_epoch = _steps_per_epoch(opening)
        self._windows: dict[str, list[_Window]] = {}
        self._place = 0.0  # in plain steps, for budgets that count something else
        self._asked: dict[str, set[float]] = {}  # the propensities with which each task was drawn

    @property
    def epochs(self) -> Array:
        """Of each task if it had all steps, shape `(tasks,)`."""
        return self.schedule.steps / self._per_epoch

    def add(self, record: Record) -> None:
        match record:
            case UnitRecord():
                self._add_step(record)
            case Evaluation(split="dev"):
                self.training.append(self._training.copy())
                self.evaluations.append(record)
                self._place = self._counted(record)
            case Extended():
                self.schedule = self._schedule(record.budget)

    def shares(self) -> Array:
        """Return the tasks' probabilities if these did not change, else their shares of the steps.

        The shares of the draws differ from what the policy asked for by chance.
        """
        asked = [self._asked.get(task, set()) for task in self._opening.tasks]
        shares = np.array([next(iter(ps)) if len(ps) == 1 else np.nan for ps in asked])
        return shares if math.isclose(shares.sum(), 1.0) else self.drawn / self.drawn.sum()

    def free_scores(self) -> dict[str, FreeScores]:
        """Return the windows of each task that has any."""
        return {
            task: FreeScores(
                np.array([window.training for window in windows]).T,
                np.array([window.score for window in windows]),
                np.array([float(window.examples) for window in windows]),
            )
            for task, all_windows in self._windows.items()
            if (windows := [window for window in all_windows if window.examples >= FREE_WINDOW])
        }

    def _add_step(self, record: UnitRecord) -> None:
        if isinstance(record, Step) and record.batch_score is not None and record.examples:
            windows = self._windows.setdefault(record.task, [])
            if not windows or windows[-1].examples >= FREE_WINDOW:
                windows.append(_Window(len(RATE_POWERS)))
            before = self._training[:, self._index[record.task]]
            windows[-1].add(record.examples, record.batch_score, before)
        if isinstance(record, Step):
            self._asked.setdefault(record.task, set()).add(record.p)
        schedule = self.schedule
        self._place += 1
        weights = schedule.weights(record.step if self._opening.count == "steps" else self._place)
        for task, share in record.shares().items():
            k = self._index[task]
            value = float(novelty(self.drawn[k] / self._per_epoch[k]))
            self._training[:, k] += weights * value * share * schedule.batch
            self.drawn[k] += share

    def _counted(self, record: Evaluation) -> float:
        """Return the place of an evaluation in the schedule, in plain steps."""
        batch = self._opening.budget.get("batch", 1)
        match self._opening.count:
            case "examples":
                return record.backward / batch
            case "compute":
                return (record.forward + record.backward) / (2 * batch)
        return float(record.step)

    def _schedule(self, budget: dict[str, int]) -> RateSchedule:
        amount = budget.get("tokens") or budget.get("batch", 1)
        return RateSchedule(budget.get("steps", 1), amount, self._opening.warmup)


def _steps_per_epoch(opening: Opening) -> Array:
    """Return the steps in an epoch of each task, infinite if its size is unknown."""
    batch = opening.budget.get("batch", 1)
    steps = {task: max(1.0, size / batch) for task, size in opening.sizes.items()}
    steps.update(opening.batches or {})
    return np.array([steps.get(task, np.inf) for task in opening.tasks])
