"""Tune the mixture of a run file: run, learn shares from all runs so far, run again."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from taskmix.config import RunConfig, decided_by, with_sets
from taskmix.errors import UserError, explain
from taskmix.files import SCORES as SCORES_FILE
from taskmix.files import write_whole
from taskmix.offpolicy.curves import FLOOR, LearnedMixture, ScoredRun, learn_mixture
from taskmix.policies.state import Array
from taskmix.studies.compare import LOCKS, run_jobs
from taskmix.studies.contestants import Job
from taskmix.studies.improve import schedule_of, write_policy
from taskmix.studies.locks import FileLocks
from taskmix.studies.paired import LOSSES, SCORES, Unit
from taskmix.studies.workers import Runner, helpers, keep_settings
from taskmix.tables import Column, Row, Table, Tabled, hundredths
from taskmix.training.prepare import without_epochs

if TYPE_CHECKING:
    from taskmix.training.watching import Watcher

SETTINGS = "tune.yaml"
RUN_NAME, FORECAST, POLICY = "run-{}", "forecast-{}.json", "policy-{}.yaml"


@dataclass(frozen=True)
class TuneSettings:
    """The settings that all runs of a tuning share.

    Args:
        pilot_steps: the budget of the first run; that of the run file if None.
        floor: the least share of a task.
        repeats: how often each run is made, with different seeds.
    """

    pilot_steps: int | None = None
    floor: float = FLOOR
    repeats: int = 1


@dataclass(frozen=True, eq=False)
class TunedRun:
    """A run, made with one or more seeds, and the forecast that was made for it.

    Args:
        name: `run-0` is the pilot.
        folders: of the run with each seed.
        promised: the shares that it followed, with their forecast; None for the pilot.
        scored: its evaluations, by seed.
    """

    name: str
    folders: tuple[Path, ...]
    promised: LearnedMixture | None
    scored: tuple[ScoredRun, ...]

    @property
    def objective(self) -> float:
        """The mean value of the target tasks at the end of the run, over the seeds."""
        targets = [run.values[-1, np.isin(run.tasks, run.targets)].mean() for run in self.scored]
        return float(np.mean(targets))

    def mean(self, values: Callable[[ScoredRun], Array]) -> Array:
        """Return the mean over the seeds of the tasks' values, shape `(tasks,)`."""
        mean: Array = np.mean([values(run) for run in self.scored], axis=0)
        return mean


@dataclass(frozen=True, repr=False)
class Tuning(Tabled):
    """The runs of a tuning in order, and what was promised and reached by each."""

    runs: Sequence[TunedRun]

    @property
    def unit(self) -> Unit:
        return LOSSES if self.runs[0].scored[0].measure == "loss" else SCORES

    def verdict(self) -> str:
        """Return what the last run reached, against the pilot and its own forecast."""
        pilot, last, unit = self.runs[0], self.runs[-1], self.unit
        reached = f"{last.name} reached {unit.level(last.objective)}"
        if last.promised is None:
            return f"{reached}. It is the pilot: no run with learned shares is finished."
        forecast = last.promised.objective
        low, high = sorted([forecast.low, forecast.high], key=lambda value: unit.factor * value)
        interval = (
            f"{unit.level(forecast.mean)} (90% interval {unit.level(low)} to {unit.level(high)})."
        )
        seeds = len(last.scored)
        if seeds > 1:
            return (
                f"{reached} with learned shares, on average over {seeds} seeds; the pilot reached "
                f"{unit.level(pilot.objective)}. Predicted for a single run: {interval}"
            )
        return (
            f"{reached} with learned shares; the pilot reached {unit.level(pilot.objective)}. "
            f"Predicted: {interval} "
            "Single runs do not tell a difference from noise: compare mixtures with several seeds."
        )

    def tables(self) -> list[Table]:
        """Return the objective of each run, and each task's shares and scores."""
        return [self._objectives_table(), self._tasks_table()]

    def _objectives_table(self) -> Table:
        measure = self.runs[0].scored[0].measure
        columns = [
            Column("run"),
            Column("seeds", "d"),
            Column("steps", ",d"),
            Column("predicted"),
            Column("reached", self._level),
        ]
        rows: list[Row] = [
            [
                run.name if run.promised else f"{run.name} (pilot)",
                len(run.scored),
                run.scored[0].schedule.steps,
                run.promised.objective.cell(measure) if run.promised else None,
                run.objective,
            ]
            for run in self.runs
        ]
        return Table(columns, rows, notes=tuple(self._notes()))

    def _tasks_table(self) -> Table:
        """Return two columns for each run: the shares of the tasks, and their scores or losses."""
        measure = self.runs[0].scored[0].measure
        columns, values = [Column("task")], []
        for run in self.runs:
            columns += [Column(f"{run.name}: share", ".1%"), Column(measure, self._level)]
            values += [run.mean(lambda one: one.shares), run.mean(lambda one: one.values[-1])]
        rows: list[Row] = [
            [task, *(float(of_tasks[k]) for of_tasks in values)]
            for k, task in enumerate(self.runs[0].scored[0].tasks)
        ]
        return Table(columns, rows)

    def _level(self, value: float) -> str:
        """Return a score, or a negative loss, in words."""
        return hundredths(value) if self.runs[0].scored[0].measure == "score" else f"{-value:.3f}"

    def _notes(self) -> list[str]:
        notes = ["Predicted before the run from the runs above it, with 90% intervals."]
        if any(len(run.scored) > 1 for run in self.runs):
            notes = [
                "Predicted for a single run before the run, from the runs above it, with 90% "
                "intervals; reached on average over the seeds."
            ]
        first = next((run.promised for run in self.runs if run.promised), None)
        pilot, last = (run.scored[0].schedule.steps for run in (self.runs[0], self.runs[-1]))
        late = [task.task for task in first.tasks if not task.begun] if first else []
        if late and pilot < last:
            notes.append(
                f"The pilot of {pilot} steps was too short to see these tasks begin: "
                f"{', '.join(late)}."
            )
        return notes


def tune(
    config: RunConfig | Mapping[str, Any] | str | Path,
    runs: int = 1,
    out: Path | str | None = None,
    *,
    pilot_budget: int | None = None,
    floor: float = FLOOR,
    repeats: int = 1,
    workers: int = 1,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Tuning:
    """Run a pilot, learn better shares from its scores, run with them, and so on.

    Each run learns from all runs before it. The same call continues after an interruption, or adds
    runs; several calls with the same folder divide the runs among them. A run that diverges is left
    out.

    The pilot in `out/run-0` follows the policy of the run file. The forecast for run i is in
    `out/forecast-i.json`, its shares are in `out/policy-i.yaml`. All runs have different seeds;
    with several repeats, the run with seed 7 is in `out/run-i/seed-7`.

    Args:
        config: the configuration of the runs, as `run` takes it.
        runs: the number of runs after the pilot.
        out: the folder of the runs; `studies/NAME-tuned` if None.
        pilot_budget: the steps of the pilot; those of the configuration if None.
        floor: the least share of a task.
        repeats: how often each run is made, with different seeds; the next shares are learned from
            all of them.
        workers: processes on this machine, which divide the repeats of a run among them. With more
            than one, watch has to be a function of a module.
        watch: a function that creates the watcher of a run from its configuration and a title.
    """
    from taskmix.training.run import configured

    shared = configured(config)
    if shared.family.key == "weighting":
        raise UserError("tune: expected a run file with a policy or a selector, found a weighting")
    folder = Path("studies") / f"{shared.name}-tuned" if out is None else Path(out)
    settings, locks = TuneSettings(pilot_budget, floor, repeats), FileLocks(folder / LOCKS)
    with locks.wait(SETTINGS):
        keep_settings(folder / SETTINGS, settings)
    plan = _Plan(without_epochs(shared), runs, folder, settings)
    with helpers(workers - 1, _work, plan, Runner(watch=watch), locks):
        _work(plan, Runner(watch=watch), locks)
    return read_tuning(folder)


def read_tuning(out: Path) -> Tuning:
    """Return the finished runs in the folder of a tuning."""
    tuned: list[TunedRun] = []
    while (run := _read_run(out, len(tuned))) is not None:
        tuned.append(run)
    if not tuned:
        raise UserError(f"{out}: expected a finished run of a tuning, found none")
    return Tuning(tuned)


@dataclass(frozen=True)
class _Plan:
    """The runs of a tuning, which every worker goes through."""

    config: RunConfig
    runs: int
    out: Path
    settings: TuneSettings

    def jobs(self, i: int, planned: RunConfig) -> list[Job]:
        """Return the repeats of run i."""
        name, repeats = RUN_NAME.format(i), self.settings.repeats
        first = self.config.seed + i * repeats
        jobs = []
        for seed in range(first, first + repeats):
            below = name if repeats == 1 else f"{name}/seed-{seed}"
            seeded = planned.model_copy(update={"seed": seed})
            jobs.append(Job(name, seeded, self.out / below, below))
        return jobs

    def planned(self, i: int, runs: Sequence[TunedRun]) -> RunConfig:
        """Return the configuration of run i, which is learned from the runs before it."""
        if i == 0:
            steps = self.settings.pilot_steps or self.config.budget.steps
            return with_sets(self.config, [f"budget.steps={steps}"])
        path, policy = self.out / FORECAST.format(i), POLICY.format(i)
        if path.exists():
            mixture = _read_forecast(path)
        else:
            scored = [seed for run in runs for seed in run.scored]
            mixture = learn_mixture(scored, schedule_of(self.config), floor=self.settings.floor)
            write_whole(path, json.dumps(asdict(mixture), indent=2) + "\n")
        promise = mixture.promise(self.config.budget.steps)
        spec = write_policy(self.out / policy, [mixture.shares], promise)
        return decided_by(self.config, spec, self.out, policy)


def _work(plan: _Plan, runner: Runner, locks: FileLocks) -> None:
    """Train the runs that no other worker has locked, one after the other."""
    tuned: list[TunedRun] = []
    for i in range(plan.runs + 1):
        with locks.wait(FORECAST.format(i)):
            planned = plan.planned(i, tuned)
        run_jobs(plan.jobs(i, planned), runner, locks)
        run = _read_run(plan.out, i)
        if run is None:
            raise UserError(
                f"{plan.out / RUN_NAME.format(i)}: expected a run that does not diverge, found "
                "none; look at the data or lower optimizer.lr"
            )
        tuned.append(run)


def _read_run(out: Path, i: int) -> TunedRun | None:
    """Return run i with the seeds that are finished; None if there are none."""
    name = RUN_NAME.format(i)
    folders = [out / name, *sorted((out / name).glob("seed-*"), key=_seed_of)]
    folders = [folder for folder in folders if (folder / SCORES_FILE).exists()]
    if not folders:
        return None
    scored = [ScoredRun.from_journal(folder) for folder in folders]
    promised = _read_forecast(out / FORECAST.format(i)) if i else None
    ordered = tuple(run.reordered(scored[0].tasks) for run in scored)
    return TunedRun(name, tuple(folders), promised, ordered)


def _seed_of(folder: Path) -> int:
    return int(folder.name.removeprefix("seed-"))


def _read_forecast(path: Path) -> LearnedMixture:
    try:
        return TypeAdapter(LearnedMixture).validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path}: expected a forecast, found {explain(error)}") from None
