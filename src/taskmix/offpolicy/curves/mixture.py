"""The mixture of tasks that learning curves promise most for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.offpolicy.curves.allocation import allocate
from taskmix.offpolicy.curves.posterior import LearningCurves
from taskmix.offpolicy.curves.scored_run import Measure, RateSchedule, ScoredRun
from taskmix.policies.state import Array
from taskmix.rng import stream
from taskmix.tables import Column, Row, Table, TableCell, Tabled, hundredths

#: The share that every task keeps, so that later runs can learn about it.
FLOOR = 0.02
#: Equal parts of the budget that are allocated.
UNITS = 250
#: With a lower probability of any gain, the shares stay as they were.
CONFIDENCE = 0.7
INTERVAL = (0.05, 0.95)
#: A task has begun if its score has risen by two standard deviations with this probability.
BEGUN, RISEN = 0.9, 2.0


@dataclass(frozen=True)
class Forecast:
    """A mean and a 90% interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: Array) -> "Forecast":
        low, high = np.quantile(draws, INTERVAL).tolist()
        return cls(float(draws.mean()), low, high)

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high

    def cell(self, measure: Measure) -> TableCell:
        """Return the mean and the interval in words, of losses without their sign."""
        text, sign = _units(measure)
        low, high = sorted([sign * self.low, sign * self.high])
        return TableCell(
            f"{text(sign * self.mean)} ({text(low)} to {text(high)})", sign * self.mean
        )


def _units(measure: Measure) -> tuple[Callable[[float], str], float]:
    """Return how values are written, and their sign."""
    return (hundredths, 1.0) if measure == "score" else ("{:.3f}".format, -1.0)


@dataclass(frozen=True)
class Promise:
    """The forecast of a run with learned shares, as their policy file stores it.

    Args:
        steps: the budget of the run that it is for.
        measure: whether the values are scores or negative losses.
        objective: the mean value of the target tasks.
        tasks: the value of each task.
    """

    steps: int
    measure: Measure
    objective: Forecast
    tasks: Mapping[str, Forecast]

    def table(self, values: Mapping[str, float], objective: float) -> Table:
        """Return the forecast beside the values of a run, which are scores or losses."""
        text, sign = _units(self.measure)
        columns = [Column("task"), Column("predicted"), Column("reached", text)]
        rows: list[Row] = [
            [task, forecast.cell(self.measure), values.get(task)]
            for task, forecast in self.tasks.items()
        ]
        rows.append(["objective", self.objective.cell(self.measure), objective])
        inside = [
            forecast.covers(sign * values[task])
            for task, forecast in self.tasks.items()
            if task in values
        ]
        notes = (
            f"The forecast of the learned shares for {self.steps:,} steps, with 90% intervals; "
            f"{sum(inside)} of {len(inside)} tasks are within theirs.",
        )
        return Table(columns, rows, title="Forecast", notes=notes, totals=1)


@dataclass(frozen=True)
class TaskForecast:
    """What is known of one task, and what a run with the learned shares may score on it.

    Args:
        task: the name of the task.
        before: its share in the last run.
        share: its learned share.
        score: the score of a run with the learned shares; a negative loss if losses were learned.
        unchanged: the score of a run with the shares of the last run.
        begun: whether the scores so far have risen beyond their noise.
    """

    task: str
    before: float
    share: float
    score: Forecast
    unchanged: Forecast
    begun: bool


@dataclass(frozen=True, repr=False)
class LearnedMixture(Tabled):
    """Shares that maximise the expected objective, and the forecast of a run with them.

    Args:
        tasks: the forecast of each task.
        objective: the mean value of the target tasks in a run with the learned shares.
        gain: of the objective over a run with the shares of the last run, without the noise of
            single runs.
        confidence: the probability of a gain.
        changed: whether a gain is to be expected; else the shares are those of the last run.
        measure: whether the values are scores or negative losses.
    """

    tasks: tuple[TaskForecast, ...]
    objective: Forecast
    gain: Forecast
    confidence: float
    changed: bool
    measure: Measure

    @property
    def shares(self) -> dict[str, float]:
        """The learned share of each task."""
        return {task.task: task.share for task in self.tasks}

    def promise(self, steps: int) -> Promise:
        """Return the forecast for a run of so many steps."""
        scores = {task.task: task.score for task in self.tasks}
        return Promise(steps, self.measure, self.objective, scores)

    def tables(self) -> list[Table]:
        """Return the shares and the forecast of each task, with the gain in sentences."""
        text, _ = _units(self.measure)
        columns = [
            Column("task"),
            Column("old share", ".1%"),
            Column("learned share", ".1%"),
            Column(f"{self.measure} with old shares"),
            Column(f"{self.measure} with learned shares"),
        ]
        rows: list[Row] = [
            [
                task.task,
                task.before,
                task.share,
                task.unchanged.cell(self.measure),
                task.score.cell(self.measure),
            ]
            for task in self.tasks
        ]
        return [Table(columns, rows, notes=tuple(self._notes(text)))]

    def _notes(self, text: Callable[[float], str]) -> Iterator[str]:
        """Yield sentences about tasks that have not begun, and about the gain."""
        late = [task.task for task in self.tasks if not task.begun]
        if late:
            source = " from the curves of the other tasks" if len(late) < len(self.tasks) else ""
            yield (
                f"Not begun: {', '.join(late)}. Their scores have not risen beyond their noise, or "
                "not above the baseline of a constant prediction. Their predictions are guesses"
                f"{source}: a longer run with the old shares is the better next step."
            )
        yield "Predictions are for one run, with 90% intervals in parentheses."
        if self.changed:
            certainty = f"the probability of a gain is {self.confidence:.0%}"
            yield (
                f"Expected gain of the objective over the old shares: {text(self.gain.mean)} "
                f"({text(self.gain.low)} to {text(self.gain.high)}); "
                f"{'it rests on these guesses' if late else certainty}."
            )
            yield "This is a forecast, which only runs with both shares and the same seeds test."
        else:
            yield (
                "No gain to be expected: the probability of a gain by other shares is "
                f"{self.confidence:.0%}, so the shares stay as they were."
            )


def learn_mixture(
    runs: Sequence[ScoredRun],
    schedule: RateSchedule | None = None,
    targets: Sequence[str] | None = None,
    floor: float = FLOOR,
) -> LearnedMixture:
    """Learn the shares of a run's budget from the scores of earlier runs.

    Args:
        runs: of the same tasks, oldest first.
        schedule: of the run to come; that of the last run if None.
        targets: the tasks whose mean score is maximised; those of the last run if None.
        floor: the least share of a task; at most half of an equal share.
    """
    if not runs:
        raise UserError("runs: expected at least one, found none")
    if floor < 0:
        raise UserError(f"floor: expected a share from 0, found {floor}")
    last = runs[-1].reordered(runs[0].tasks)
    curves = LearningCurves(runs)
    coming = _ComingRun.after(last, curves, schedule, targets)
    learned = coming.best_shares(min(floor, 1 / (2 * len(last.tasks))))
    gains = coming.objective(learned) - coming.objective(last.shares)
    confidence = float((gains > 0).mean())
    changed = confidence >= CONFIDENCE
    if not changed:
        learned, gains = last.shares, np.zeros(1)
    scores, unchanged = coming.scores(learned), coming.scores(last.shares)
    tasks = tuple(
        TaskForecast(
            task,
            float(last.shares[k]),
            float(learned[k]),
            Forecast.of(scores[k]),
            Forecast.of(unchanged[k]),
            _begun(curves, k),
        )
        for k, task in enumerate(last.tasks)
    )
    objective = Forecast.of(np.mean(scores[coming.counted], axis=0))
    return LearnedMixture(tasks, objective, Forecast.of(gains), confidence, changed, curves.measure)


@dataclass(frozen=True, eq=False)
class _ComingRun:
    """The run that shares are learned for.

    Args:
        curves: of its tasks.
        schedule: of its learning rate.
        epochs: how often it passes each task, if that task has all of its budget.
        counted: whether a task is a target.
    """

    curves: LearningCurves
    schedule: RateSchedule
    epochs: Array
    counted: NDArray[np.bool_]

    @classmethod
    def after(
        cls,
        last: ScoredRun,
        curves: LearningCurves,
        schedule: RateSchedule | None,
        targets: Sequence[str] | None,
    ) -> Self:
        """Return the run after the last one, which has its schedule and targets where None."""
        planned = last.schedule if schedule is None else schedule
        counted = np.isin(last.tasks, last.targets if targets is None else targets)
        return cls(curves, planned, last.epochs * planned.steps / last.schedule.steps, counted)

    def best_shares(self, floor: float) -> Array:
        """Return the shares with the highest expected objective."""
        count = len(self.counted)
        shares = floor + (1 - count * floor) * np.arange(UNITS + 1) / UNITS
        expected = [
            self._values(k, shares).mean(axis=0) if self.counted[k] else 0 * shares
            for k in range(count)
        ]
        best: Array = shares[allocate(np.array(expected))]
        return best

    def objective(self, shares: Array) -> Array:
        """Return the mean of the target tasks' curves without noise, shape `(draws,)`."""
        targets = np.flatnonzero(self.counted).tolist()
        mean: Array = np.mean([self._values(k, shares[[k]])[:, 0] for k in targets], axis=0)
        return mean

    def scores(self, shares: Array) -> Array:
        """Return what one run may score, shape `(tasks, draws)`."""
        return np.array(
            [
                sample.scores(self._training(k, shares[[k]]), stream(0, "forecast", task))
                for k, (task, sample) in enumerate(
                    zip(self.curves.tasks, self.curves.samples, strict=True)
                )
            ]
        )

    def _values(self, k: int, shares: Array) -> Array:
        return self.curves.samples[k].at(self._training(k, shares))

    def _training(self, k: int, shares: Array) -> Array:
        return self.schedule.training(shares, self.epochs[k])


def _begun(curves: LearningCurves, k: int) -> bool:
    sample = curves.samples[k]
    most = np.max([run.training[:, -1, [k]] for run in curves.runs], axis=0)
    values = sample.at(most)[:, 0]
    # An untrained model may be below the baseline; predicting one class is no beginning.
    level = np.fmax(sample.level, curves.baselines[k])
    risen = values - level > RISEN * sample.deviation(values)
    return float(risen.mean()) >= BEGUN
