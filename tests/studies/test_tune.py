"""`taskmix tune`: a pilot, and runs with shares learned from all runs before."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from kills import killing
from taskmix import improve, plan, run, tune
from taskmix.cli import app
from taskmix.config import RunConfig, dump, load
from taskmix.errors import UserError
from taskmix.journal import read, without_times
from taskmix.offpolicy.curves import ScoredRun, learn_mixture
from taskmix.records import Record
from taskmix.report.page import write_report
from taskmix.report.run_body import run_verdict
from taskmix.report.run_data import read_run
from taskmix.studies.tune import read_tuning
from taskmix.training.folder import finished

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


def records(run: Path) -> list[Record]:
    return [without_times(record) for record in read(run / "journal.jsonl")]


def test_a_tuning_that_was_killed_goes_on_to_the_same_runs(
    config: RunConfig, tmp_path: Path
) -> None:
    whole = tune(config, 2, tmp_path / "whole")
    for title, step in (("run-0, seed 3", 7), ("run-1, seed 4", 13), ("run-2, seed 5", 5)):
        with pytest.raises(SystemExit):
            tune(config, 2, tmp_path / "killed", watch=killing(title, step))
    resumed = tune(config, 2, tmp_path / "killed")
    assert [run.promised for run in resumed.runs] == [run.promised for run in whole.runs]
    for i in range(3):
        whole_run, killed = (records(tmp_path / name / f"run-{i}") for name in ("whole", "killed"))
        assert whole_run == killed


def test_workers_divide_the_repeats_and_a_killed_one_is_resumed(
    config: RunConfig, tmp_path: Path
) -> None:
    alone = tune(config, 1, tmp_path / "alone", repeats=2)
    with pytest.raises(SystemExit):
        tune(config, 1, tmp_path / "two", repeats=2, watch=killing("run-1, seed 6", 13))
    for left in ("run-1/seed-5", "run-0/seed-4"):
        shutil.rmtree(tmp_path / "two" / left)
    two = tune(config, 1, tmp_path / "two", repeats=2, workers=2)
    seeds = ("run-0/seed-3", "run-0/seed-4", "run-1/seed-5", "run-1/seed-6")
    for seed in seeds:
        assert records(tmp_path / "alone" / seed) == records(tmp_path / "two" / seed)
    assert [run.promised for run in two.runs] == [run.promised for run in alone.runs]
    objectives, _ = two.tables()
    assert [row[1] for row in objectives.rows] == [2, 2]
    assert objectives.rows[1][4] == pytest.approx(
        fmean(finished(tmp_path / "two" / seed).score for seed in seeds[2:])
    )


def test_the_shares_are_learned_from_all_repeats(config: RunConfig, tmp_path: Path) -> None:
    tuning = tune(config, 1, tmp_path, repeats=2)
    pilots = [ScoredRun.from_journal(tmp_path / f"run-0/seed-{seed}") for seed in (3, 4)]
    assert tuning.runs[1].promised == learn_mixture(pilots)


def test_a_run_that_diverges_is_left_out(config: RunConfig, tmp_path: Path) -> None:
    wild = config.model_copy(update={"optimizer": config.optimizer.model_copy(update={"lr": 1e30})})
    with pytest.raises(UserError, match="run-0: expected a run that does not diverge"):
        tune(wild, 1, tmp_path / "wild")
    tune(config, 1, tmp_path, repeats=2)
    (tmp_path / "run-1/seed-6/scores.json").unlink()
    (tmp_path / "run-1/seed-6/diverged.txt").write_text("loss nan\n")
    tuning = tune(config, 1, tmp_path, repeats=2)
    assert [len(run.scored) for run in tuning.runs] == [2, 1]


def test_every_run_follows_the_shares_learned_before_it(config: RunConfig, tmp_path: Path) -> None:
    tuning = tune(config, 1, tmp_path, pilot_budget=12, floor=0.05)
    pilot, learned = tuning.runs
    assert pilot.promised is None
    assert learned.promised is not None
    [scored_pilot], [scored_run] = pilot.scored, learned.scored
    assert (scored_pilot.schedule.steps, scored_pilot.schedule.batch) == (12, 8)
    assert scored_run.schedule.steps == 20
    opening = next(read(tmp_path / "run-1/journal.jsonl"))
    assert opening.decider["probabilities"] == pytest.approx(learned.promised.shares)  # type: ignore[attr-defined]
    assert opening.seed == 4  # type: ignore[attr-defined]
    objectives, tasks = tuning.tables()
    assert [row[1:3] for row in objectives.rows] == [[1, 12], [1, 20]]
    assert objectives.rows[1][4] == pytest.approx(scored_run.values[-1].mean())
    assert [row[0] for row in tasks.rows] == list(TASKS)
    late = [task.task for task in learned.promised.tasks if not task.begun]
    assert ("too short to see these tasks begin" in objectives.notes[-1]) == bool(late)


def test_more_runs_are_added_but_not_under_other_settings(
    config: RunConfig, tmp_path: Path
) -> None:
    first = tune(config, 1, tmp_path)
    more = tune(config, 2, tmp_path)
    assert [run.promised for run in more.runs[:2]] == [run.promised for run in first.runs]
    with pytest.raises(UserError, match="begun with other settings: floor was"):
        tune(config, 2, tmp_path, floor=0.1)


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
    assert "Predicted before the run" in " ".join(result.output.split())
    tuning = read_tuning(tmp_path / "tuned")
    verdict = tuning.verdict()
    assert verdict in " ".join(result.output.split())
    assert "run-1 reached" in verdict
    assert "90% interval" in verdict
    page = (tmp_path / "tuned/report.html").read_text()
    assert verdict in page
    assert all(cell in page for row in tuning.tables()[0].texts() for cell in row)


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_report_of_a_run_shows_what_its_shares_promised(
    config: RunConfig, tmp_path: Path, by_hand: bool
) -> None:
    if by_hand:
        run(config, tmp_path / "pilot")
        mixture = improve(tmp_path / "pilot", tmp_path / "p.yaml")
        (tmp_path / "run.yaml").write_text(dump(config))
        run(load(tmp_path / "run.yaml", ["policy=p.yaml", "seed=4"]), tmp_path / "run")
    else:
        promised = tune(config, 1, tmp_path / "tuned").runs[1].promised
        assert promised is not None
        mixture = promised
        shutil.copytree(tmp_path / "tuned/run-1", tmp_path / "run")
    page = write_report(tmp_path / "run").read_text()
    assert "The forecast of the learned shares for 20 steps" in page
    assert mixture.objective.cell("score").text in page
    for task in mixture.tasks:
        assert task.score.cell("score").text in page
    assert "forecast" not in run_verdict(read_run(tmp_path / "run"))


def test_the_report_refuses_a_forecast_that_was_changed(config: RunConfig, tmp_path: Path) -> None:
    shares = {"name": "fixed", "probabilities": dict.fromkeys(TASKS, 1 / 3)}
    policy = shares | {"forecast": {"steps": "many"}}
    run(config.model_copy(update={"policy": policy}), tmp_path / "run")
    with pytest.raises(UserError, match=r"journal.jsonl: forecast: .*steps: input should be"):
        write_report(tmp_path / "run")


def test_a_damaged_forecast_is_one_sentence(config: RunConfig, tmp_path: Path) -> None:
    tune(config, 1, tmp_path)
    (tmp_path / "forecast-1.json").write_text("{}")
    with pytest.raises(UserError, match=r"forecast-1\.json: expected a forecast, found "):
        read_tuning(tmp_path)


def test_an_unfinished_tuning_has_a_report(config: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        tune(config, 1, tmp_path, watch=killing("run-0, seed 3", 7))
    with pytest.raises(UserError, match="expected a finished run of a tuning, found none"):
        write_report(tmp_path)
    with pytest.raises(SystemExit):
        tune(config, 1, tmp_path, watch=killing("run-1, seed 4", 7))
    assert "no run with learned shares is finished" in write_report(tmp_path).read_text()


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
    planned = plan(config, cost=False, earlier=[pilot])
    assert json.loads(json.dumps(planned.to_json())) == json.loads(result.stdout)
    assert "old shares" in str(planned)
    other = config.model_copy(update={"tasks": config.tasks[:2]})
    (tmp_path / "other.yaml").write_text(dump(other))
    refused = CliRunner().invoke(app, ["plan", str(tmp_path / "other.yaml"), *command[2:], pilot])
    assert isinstance(refused.exception, UserError)
    assert "expected the same tasks" in str(refused.exception)
