"""Tune the mixture of a run file: run, learn shares from all runs so far, run again."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml
from pydantic import TypeAdapter

from taskmix.config import RunConfig, decided_by, read_yaml, with_sets
from taskmix.errors import UserError
from taskmix.files import SCORES as SCORES_FILE
from taskmix.files import write_whole
from taskmix.offpolicy.curves import (
    FLOOR,
    Forecast,
    LearnedMixture,
    ScoredRun,
    learn_mixture,
)
from taskmix.studies.improve import schedule_of, write_policy
from taskmix.studies.paired import LOSSES, SCORES, Unit
from taskmix.studies.workers import Runner, check_same_settings
from taskmix.tables import Column, Row, Table, TableCell, Tabled, hundredths
from taskmix.training.prepare import with_steps, without_epochs

if TYPE_CHECKING:
    from taskmix.training.watching import Watcher

SETTINGS = "tune.yaml"
FORECAST, POLICY = "forecast-{}.json", "policy-{}.yaml"


@dataclass(frozen=True)
class TuneSettings:
    """The settings that all runs of a tuning share.

    Args:
        pilot_steps: the budget of the first run; that of the run file if None.
        floor: the least share of a task.
    """

    pilot_steps: int | None = None
    floor: float = FLOOR


@dataclass(frozen=True, eq=False)
class TunedRun:
    """A run, and the forecast that was made for it; None for the first run.

    Args:
        folder: of the run.
        promised: the shares that it followed, with their forecast.
        scored: its evaluations.
    """

    folder: Path
    promised: LearnedMixture | None
    scored: ScoredRun

    @property
    def objective(self) -> float:
        """The mean value of the target tasks at the end of the run."""
        return float(self.scored.values[-1, np.isin(self.scored.tasks, self.scored.targets)].mean())


@dataclass(frozen=True, repr=False)
class Tuning(Tabled):
    """The runs of a tuning in order, and what was promised and reached by each."""

    runs: Sequence[TunedRun]

    def tables(self) -> list[Table]:
        """Return the objective of each run, and each task's shares and scores."""
        sign, text = 1.0, hundredths
        if self.runs[0].scored.measure == "loss":
            sign, text = -1.0, "{:.3f}".format

        def promised(forecast: Forecast | None) -> TableCell | None:
            if forecast is None:
                return None
            low, high = sorted([sign * forecast.low, sign * forecast.high])
            mean = sign * forecast.mean
            return TableCell(f"{text(mean)} ({text(low)} to {text(high)})", mean)

        objectives: list[Row] = [
            [
                run.folder.name,
                run.scored.schedule.steps,
                promised(run.promised.objective if run.promised else None),
                sign * run.objective,
            ]
            for run in self.runs
        ]
        columns = [
            Column("run"),
            Column("steps", ",d"),
            Column("promised"),
            Column("reached", text),
        ]
        by_run = [(run.folder.name, run.scored) for run in self.runs]
        tasks: list[Row] = [
            [task, *(value for _, run in by_run for value in _of_task(run, task, sign))]
            for task in self.runs[0].scored.tasks
        ]
        heads = [
            column
            for name, run in by_run
            for column in (Column(f"{name}: share", ".1%"), Column(run.measure, text))
        ]
        return [
            Table(columns, objectives, notes=tuple(self._notes())),
            Table([Column("task"), *heads], tasks),
        ]

    @property
    def unit(self) -> Unit:
        return LOSSES if self.runs[0].scored.measure == "loss" else SCORES

    def verdict(self) -> str:
        """Return what the last run reached, against the pilot and its own forecast."""
        pilot, last, unit = self.runs[0], self.runs[-1], self.unit
        reached = f"{last.folder.name} reached {unit.level(last.objective)}"
        if last.promised is None:
            return f"{reached}. It is the pilot: no run with learned shares is finished."
        forecast = last.promised.objective
        low, high = sorted([forecast.low, forecast.high], key=lambda value: unit.factor * value)
        return (
            f"{reached} with learned shares; the pilot reached {unit.level(pilot.objective)}. "
            "Predicted: "
            f"{unit.level(forecast.mean)} (90% interval {unit.level(low)} to {unit.level(high)}). "
            "Single runs do not tell a difference from noise: compare mixtures with several seeds."
        )

    def _notes(self) -> list[str]:
        notes = ["Promised with 90% intervals, before the run, from the runs above it."]
        first = next((run.promised for run in self.runs if run.promised), None)
        pilot, last = self.runs[0].scored.schedule.steps, self.runs[-1].scored.schedule.steps
        late = [task.task for task in first.tasks if not task.begun] if first else []
        if late and pilot < last:
            notes.append(
                f"The pilot of {pilot} steps was too short to see these tasks begin: "
                f"{', '.join(late)}."
            )
        return notes


def _of_task(run: ScoredRun, task: str, sign: float) -> tuple[float, float]:
    k = run.tasks.index(task)
    return float(run.shares[k]), sign * float(run.values[-1, k])


def tune(
    config: RunConfig,
    runs: int,
    out: Path,
    settings: TuneSettings | None = None,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Tuning:
    """Run a pilot, then learn shares from all runs so far and run with them, several times.

    The pilot in `out/run-0` follows the policy of the run file. The forecast for run i is in
    `out/forecast-i.json`, its shares are in `out/policy-i.yaml`; each run has another seed. The
    same call continues a tuning that was interrupted, or adds runs to it.

    Args:
        config: the run.
        runs: the number of runs after the pilot.
        out: the folder of the tuning.
        settings: the pilot's budget and the least share; the defaults if None.
        watch: returns a watcher of a run.
    """
    if config.family.key == "weighting":
        raise UserError("tune: expected a run file with a policy or a selector, found a weighting")
    settings, runner = settings or TuneSettings(), Runner(watch=watch)
    config = without_epochs(with_steps(config))
    _check_settings(out / SETTINGS, settings)
    pilot = config
    if settings.pilot_steps is not None:
        pilot = with_sets(config, [f"budget.steps={settings.pilot_steps}"])
    tuned: list[TunedRun] = []
    for i in range(runs + 1):
        folder, promised, planned = out / f"run-{i}", None, pilot
        if i > 0:
            scored = [run.scored for run in tuned]
            promised = _forecast(out / FORECAST.format(i), scored, config, settings)
            spec = write_policy(out / POLICY.format(i), [promised.shares])
            reseeded = config.model_copy(update={"seed": config.seed + i})
            planned = decided_by(reseeded, spec, out, POLICY.format(i))
        runner.run(planned, folder, folder.name)
        tuned.append(TunedRun(folder, promised, ScoredRun.from_journal(folder)))
    return Tuning(tuned)


def _forecast(
    path: Path, runs: Sequence[ScoredRun], config: RunConfig, settings: TuneSettings
) -> LearnedMixture:
    """Return the stored forecast, or learn and store it."""
    if path.exists():
        return _read_forecast(path)
    mixture = learn_mixture(runs, schedule_of(config), floor=settings.floor)
    write_whole(path, json.dumps(asdict(mixture), indent=2) + "\n")
    return mixture


def read_tuning(folder: Path) -> Tuning:
    """Return the finished runs of a tuning; raise if there is none."""
    tuned: list[TunedRun] = []
    while (run := folder / f"run-{len(tuned)}").is_dir() and (run / SCORES_FILE).exists():
        forecast = folder / FORECAST.format(len(tuned))
        promised = _read_forecast(forecast) if forecast.exists() else None
        tuned.append(TunedRun(run, promised, ScoredRun.from_journal(run)))
    if not tuned:
        raise UserError(f"{folder}: expected a finished run, found none")
    return Tuning(tuned)


def _read_forecast(path: Path) -> LearnedMixture:
    return TypeAdapter(LearnedMixture).validate_json(path.read_bytes())


def _check_settings(path: Path, settings: TuneSettings) -> None:
    """Keep the settings in the folder; raise if the tuning was begun with others."""
    if path.exists():
        check_same_settings(str(path), read_yaml(path), asdict(settings), "choose another folder")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, yaml.safe_dump(asdict(settings), sort_keys=False))
