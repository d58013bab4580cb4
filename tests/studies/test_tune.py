"""`taskmix tune`: a pilot, and runs with shares learned from all runs before."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from taskmix.cli import app
from taskmix.config import RunConfig, dump
from taskmix.errors import UserError
from taskmix.journal import read, without_times
from taskmix.records import UnitRecord
from taskmix.studies.tune import TuneSettings, read_tuning, tune
from taskmix.training.watching import Watcher

TASKS = ("digits/left", "digits/right", "digits/larger")


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(
        name="digits",
        tasks=TASKS,
        policy="random",
        budget={"steps": 20, "batch": 8},
        optimizer={"lr": 3e-3},
        evaluate={"every": 4, "examples": 40, "keep": "last"},
        seed=3,
    )


class Killer(Watcher):
    """Ends a run at one of its steps, as a kill would."""

    def __init__(self, step: int) -> None:
        self._step = step

    def advanced(self, record: UnitRecord) -> None:
        if record.step == self._step:
            raise SystemExit(137)


def killing(run: str, step: int) -> Callable[[RunConfig, str], Watcher]:
    return lambda config, title: Killer(step) if title == run else Watcher()


def test_a_tuning_that_was_killed_goes_on_to_the_same_runs(
    config: RunConfig, tmp_path: Path
) -> None:
    whole = tune(config, 2, tmp_path / "whole")
    for run, step in (("run-0", 7), ("run-1", 13), ("run-2", 5)):
        with pytest.raises(SystemExit):
            tune(config, 2, tmp_path / "killed", watch=killing(run, step))
    resumed = tune(config, 2, tmp_path / "killed")
    assert [run.promised for run in resumed.runs] == [run.promised for run in whole.runs]
    for i in range(3):
        journals = [
            [without_times(record) for record in read(tmp_path / name / f"run-{i}/journal.jsonl")]
            for name in ("whole", "killed")
        ]
        assert journals[0] == journals[1]


def test_every_run_follows_the_shares_learned_before_it(config: RunConfig, tmp_path: Path) -> None:
    tuning = tune(config, 1, tmp_path, TuneSettings(pilot_steps=12, floor=0.05))
    pilot, run = tuning.runs
    assert pilot.promised is None
    assert run.promised is not None
    assert (pilot.scored.schedule.steps, pilot.scored.schedule.batch) == (12, 8)
    assert run.scored.schedule.steps == 20
    opening = next(read(tmp_path / "run-1/journal.jsonl"))
    assert opening.decider["probabilities"] == pytest.approx(run.promised.shares)  # type: ignore[attr-defined]
    assert opening.seed == 4  # type: ignore[attr-defined]
    objectives, tasks = tuning.tables()
    assert [row[1] for row in objectives.rows] == [12, 20]
    assert objectives.rows[1][3] == pytest.approx(run.scored.values[-1].mean())
    assert [row[0] for row in tasks.rows] == list(TASKS)
    late = [task.task for task in run.promised.tasks if not task.begun]
    assert ("too short to see these tasks begin" in objectives.notes[-1]) == bool(late)


def test_more_runs_are_added_but_not_under_other_settings(
    config: RunConfig, tmp_path: Path
) -> None:
    first = tune(config, 1, tmp_path)
    more = tune(config, 2, tmp_path)
    assert [run.promised for run in more.runs[:2]] == [run.promised for run in first.runs]
    with pytest.raises(UserError, match="expected floor as it was begun with"):
        tune(config, 2, tmp_path, TuneSettings(floor=0.1))


def test_a_weighting_cannot_be_tuned(config: RunConfig, tmp_path: Path) -> None:
    weighting = {"name": "alpha_vil", "target": TASKS[0]}
    other = config.model_copy(update={"policy": None, "weighting": weighting})
    with pytest.raises(UserError, match="expected a run file with a policy or a selector"):
        tune(other, 1, tmp_path)


def test_the_command_prints_promises_and_results(config: RunConfig, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(dump(config))
    words = ["tune", str(file), "--out", str(tmp_path / "tuned"), "--quiet"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "run-1" in result.output
    printed = " ".join(result.output.split())
    assert "Promised with 90% intervals" in printed
    verdict = read_tuning(tmp_path / "tuned").verdict()
    assert verdict in printed
    assert "run-1 reached" in verdict
    assert "90% interval" in verdict
    assert verdict in (tmp_path / "tuned" / "report.html").read_text()


def test_a_plan_forecasts_from_an_earlier_run(config: RunConfig, tmp_path: Path) -> None:
    tuning = tune(config, 1, tmp_path / "tuned")
    (tmp_path / "run.yaml").write_text(dump(config))
    command = ["plan", str(tmp_path / "run.yaml"), "--no-cost", "--from"]
    pilot = str(tmp_path / "tuned/run-0")
    result = CliRunner().invoke(app, [*command, pilot, "--json"])
    assert result.exit_code == 0, result.output
    promised = tuning.runs[1].promised
    assert promised is not None
    predicted = json.loads(result.stdout)["forecast"]
    assert predicted["gain"] == pytest.approx(asdict(promised.gain))
    assert [task["share"] for task in predicted["tasks"]] == pytest.approx(
        list(promised.shares.values())
    )
    assert "shares before" in CliRunner().invoke(app, [*command, pilot]).stdout
    other = config.model_copy(update={"tasks": config.tasks[:2]})
    (tmp_path / "other.yaml").write_text(dump(other))
    refused = CliRunner().invoke(app, ["plan", str(tmp_path / "other.yaml"), *command[2:], pilot])
    assert isinstance(refused.exception, UserError)
    assert "expected the same tasks" in str(refused.exception)
