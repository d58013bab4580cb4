"""The studies behind `taskmix estimate` and `taskmix improve`."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import taskmix
from taskmix.cli import app
from taskmix.config import RunConfig, build_decider, build_policy
from taskmix.errors import UserError
from taskmix.journal import Evaluation, Extended, Journal, Opening
from taskmix.mixing import Decisions
from taskmix.offpolicy import (
    Estimate,
    Log,
    entropy_weight,
    estimate,
    estimate_improved,
    improve,
    mean_shares,
)
from taskmix.offpolicy.curves import LearnedMixture
from taskmix.policies import Outcome, Policy, Schedule
from taskmix.rng import stream
from taskmix.run_info import RunInfo
from taskmix.studies.improve import (
    ImproveSettings,
    PolicyEstimate,
    improve_from_rewards,
    improve_loop,
    read_policy,
    write_policy,
)

TASKS = ["digits/left", "digits/right"]
SIZES = {"digits/left": 100, "digits/right": 300}
INFO = RunInfo(SIZES, steps=300, batch=16)


def make_run(config: RunConfig, folder: Path, **_: object) -> None:
    """A training in name only: the first task is the harder one."""
    if (folder / "scores.json").exists():
        return
    folder.mkdir(parents=True)
    policy = build_decider(config, RunInfo(SIZES, config.budget.steps, config.budget.batch))
    assert isinstance(policy, Policy)
    rng = stream(config.seed, "draws")
    budget = config.budget.model_dump(exclude={"count"}, exclude_none=True)
    opening = Opening("run", TASKS, SIZES, config.seed, {"policy": config.policy}, budget)
    with Journal.create(folder / "journal.jsonl", opening) as journal:
        for step in range(config.budget.steps):
            draw = policy.ask(rng)
            loss = 1 / (1 + step / 500) * (2.0 if draw.index == 0 else 0.5)
            journal.draw(step + 1, Outcome(draw, loss=loss, gain=0.01))
    (folder / "scores.json").write_text("{}")


OWN = """
from taskmix.policies import Random

class Mine(Random):
    name = "mine"
"""


def test_a_policy_of_its_own_is_imported_with_permission_only(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(config, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    ran = tmp_path / "ran"
    (tmp_path / "policy_of_a_stranger.py").write_text(f"open({str(ran)!r}, 'w')\n{OWN}")
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: policy_of_a_stranger:Mine\n")
    words = ["estimate", str(tmp_path / "run"), "--policy", str(policy)]
    refused = CliRunner().invoke(app, words)
    assert str(refused.exception) == (
        f"{policy}: needs code of its own, policy_of_a_stranger:Mine, which is not run unasked; "
        "trust it with --trust-code, in Python with trust_code=True"
    )
    assert not ran.exists()
    assert CliRunner().invoke(app, [*words, "--trust-code"]).exit_code == 0
    assert ran.exists()


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(tasks=TASKS, budget={"steps": 300})


@pytest.fixture
def run(tmp_path: Path, config: RunConfig) -> Path:
    make_run(config, tmp_path / "run")
    return tmp_path / "run"


def test_improving_writes_a_policy_file_that_a_run_takes(
    run: Path, config: RunConfig, tmp_path: Path
) -> None:
    judged = improve_from_rewards([run], tmp_path / "policy.yaml", ImproveSettings())
    expected = improve(Log.from_journal(run))
    spec = yaml.safe_load((tmp_path / "policy.yaml").read_text())
    assert spec == judged.policy
    again = build_decider(config.model_copy(update={"policy": spec}), INFO)
    assert isinstance(again, taskmix.Fixed)
    assert again.probabilities() == pytest.approx(expected.probabilities(), abs=1e-10)


def test_what_is_to_be_printed_is_there(run: Path, tmp_path: Path) -> None:
    judged = improve_from_rewards(
        [run], tmp_path / "policy.yaml", ImproveSettings(entropy_weight=2.0)
    )
    log = Log.from_journal(run)
    assert [share.task for share in judged.shares] == TASKS
    assert judged.shares[0].before == np.mean(log.actions == 0)
    assert judged.shares[0].now > 0.5
    assert sum(share.now for share in judged.shares) == pytest.approx(1)
    assert judged.estimate == estimate_improved(log, 2.0)
    assert judged.earned == pytest.approx(log.rewards.mean())
    assert (judged.steps, judged.entropy_weight) == (300, 2.0)


@pytest.mark.parametrize(
    ("earned", "interval", "words"),
    [
        (0.226, (0.197, 0.272), "The interval contains the reward that was earned: no evidence"),
        (0.19, (0.197, 0.272), None),
        (0.28, (0.197, 0.272), None),
        (0.226, None, "Without an interval this is no evidence"),
    ],
)
def test_an_estimate_that_is_no_evidence_says_so(
    earned: float, interval: tuple[float, float] | None, words: str | None
) -> None:
    found = Estimate(0.234, 0.02, interval, 80.0, 100, None if interval else "too few decisions")
    text = repr(PolicyEstimate({"name": "fixed"}, (), earned, found, 100))
    assert ("no evidence" in text) == (words is not None)
    assert words is None or words in text


def test_the_chosen_entropy_weight_is_told(run: Path, tmp_path: Path) -> None:
    judged = improve_from_rewards(
        [run], tmp_path / "policy.yaml", ImproveSettings(entropy_weight="auto")
    )
    assert judged.entropy_weight == entropy_weight(Log.from_journal(run))


def test_phases_become_a_schedule(run: Path, tmp_path: Path) -> None:
    judged = improve_from_rewards([run], tmp_path / "policy.yaml", ImproveSettings(phases=3))
    spec, policy = read_policy(tmp_path / "policy.yaml", INFO)
    assert isinstance(policy, Schedule)
    assert spec == judged.policy
    mean = sum(phase["digits/left"] for phase in spec["phases"]) / 3
    assert judged.shares[0].now == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("name: random", 0.5),
        ("name: task_size", 0.25),
        ("{name: fixed, probabilities: {digits/right: 0.4, digits/left: 0.6}}", 0.6),
        ("{name: cycle, ratio: {digits/left: 1, digits/right: 4}}", 0.2),
        ("{name: annealed, epochs: 2}", (0.25 + 1 / (1 + 3**0.2)) / 2),
    ],
)
def test_any_policy_file_can_be_estimated(run: Path, tmp_path: Path, text: str, share: float):
    (tmp_path / "p.yaml").write_text(text)
    judged = taskmix.estimate([run, run], tmp_path / "p.yaml")
    assert judged.shares[0].now == pytest.approx(share)
    assert judged.estimate.interval[0] < judged.estimate.value < judged.estimate.interval[1]
    assert judged.steps == 600


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("probabilities: {a: 1}", "p.yaml: expected the key name"),
        ("name: fixt", "p.yaml: .*did you mean 'fixed'"),
        ("{name: fixed, probabilities: {a: 1}}", "p.yaml: probabilities: expected a value for"),
        ("- a", "p.yaml: expected a mapping"),
        ("{name: annealed, epochs: 0}", "p.yaml: epochs, steps_per_epoch: expected numbers of at"),
        ("{name: [fixed]}", "p.yaml: "),
        ("{name: fixed, probabilities: [0.5, 0.5]}", "p.yaml: "),
        ("{name: fixed, probabilities: {digits/left: x, digits/right: 1}}", "p.yaml: "),
        ("{name: fixed, probabilities: {digits/left: .nan, digits/right: 1}}", "p.yaml: "),
        ("{name: temperature, temperature: hot}", "p.yaml: "),
        ("{name: schedule, phases: [7]}", "p.yaml: "),
        ("[" * 3000, "p.yaml: expected YAML, found it nested too deeply"),
    ],
)
def test_a_bad_policy_file_gets_a_sentence(run: Path, tmp_path: Path, text: str, message: str):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        taskmix.estimate(run, tmp_path / "p.yaml")


@pytest.mark.parametrize("evidence", ["objective", "rewards"])
def test_no_run_is_no_evidence(evidence: Any) -> None:
    with pytest.raises(UserError, match="runs: expected at least one, found none"):
        taskmix.improve([], evidence=evidence)
    with pytest.raises(UserError, match="runs: expected at least one, found none"):
        taskmix.estimate([], "random")


def test_a_policy_is_made_for_the_budget_of_an_extended_run(tmp_path: Path) -> None:
    opening = Opening("run", TASKS, SIZES, 1, {}, {"steps": 50, "batch": 1})
    policy, rng = taskmix.Random(TASKS), stream(1, "draws")
    with Journal.create(tmp_path / "journal.jsonl", opening) as journal:
        for step in range(1, 201):
            journal.draw(step, Outcome(policy.ask(rng), loss=1.0))
            if step == 50:
                journal.append(Extended(50, {"steps": 200, "batch": 1}))
    annealed = build_policy({"name": "annealed"}, RunInfo(SIZES, steps=200, batch=1))
    expected = mean_shares(Log.from_journal(tmp_path), annealed)
    found = taskmix.estimate(tmp_path, "annealed").shares
    assert {share.task: share.now for share in found} == expected


def test_a_policy_is_made_for_the_draws_of_a_loop_that_tells_no_budget(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    decisions = Decisions(taskmix.Random(TASKS), SIZES, batch=1, seed=1, journal=journal)
    for step in range(200):
        draw = decisions.ask()
        decisions.settle(draw.number, loss=2 / (1 + step / 50) if draw.index == 0 else 0.5)
    learned = improve_from_rewards(journal, None, ImproveSettings(phases=3))
    mean = sum(phase[TASKS[0]] for phase in learned.policy["phases"]) / 3
    assert learned.shares[0].now == pytest.approx(mean, abs=2e-3)


def test_an_unknown_reward_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown reward"):
        improve_from_rewards([run], tmp_path / "p.yaml", ImproveSettings(reward="gains"))
    judged = improve_from_rewards(
        [run], tmp_path / "p.yaml", ImproveSettings(reward="prediction_gain")
    )
    assert judged.earned == pytest.approx(0.01)


def test_a_policy_file_is_whole_or_not_there(tmp_path: Path) -> None:
    write_policy(tmp_path / "deep" / "p.yaml", [{"a": 0.25, "b": 0.75}])
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["p.yaml"]


@pytest.fixture(autouse=True)
def _no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskmix.training.run.run", make_run)


def test_a_policy_that_learns_is_replayed_or_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("{name: exp3s, eta: 0.5, epsilon: 0.2}")
    judged = taskmix.estimate(run, tmp_path / "p.yaml")
    log = Log.from_journal(run)
    policy = taskmix.Exp3S(TASKS, eta=0.5, epsilon=0.2)
    assert judged.estimate == estimate(log, policy)
    assert judged.shares[0].now == pytest.approx(mean_shares(log, policy)["digits/left"])
    (tmp_path / "p.yaml").write_text("{name: thompson, primary: digits/left}")
    with pytest.raises(UserError, match="thompson, which needs DevScore"):
        taskmix.estimate(run, tmp_path / "p.yaml")


@pytest.mark.parametrize("theirs", ["notes: mine", "", "# Written by taskmix improve (00)"])
def test_a_file_that_taskmix_did_not_write_is_kept(run: Path, tmp_path: Path, theirs: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(theirs)
    with pytest.raises(UserError, match=r"policy\.yaml: expected no file, or one that taskmix"):
        improve_from_rewards([run], path, ImproveSettings())
    assert path.read_text() == theirs
    improve_from_rewards([run], path, ImproveSettings(), force=True)
    assert read_policy(path, INFO)[0]["name"] == "fixed"


def test_a_policy_file_of_ours_is_written_again_unless_it_was_changed(
    run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    improve_from_rewards([run], path, ImproveSettings())
    improve_from_rewards([run], path, ImproveSettings(phases=2))
    assert read_policy(path, INFO)[0]["name"] == "schedule"
    path.write_text(path.read_text() + "# and a note of mine\n")
    with pytest.raises(UserError, match="--force"):
        improve_from_rewards([run], path, ImproveSettings())


def test_a_folder_is_not_overwritten_either(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected no file"):
        improve_from_rewards([run], tmp_path, ImproveSettings())


def test_the_loop_runs_improves_and_runs_again_on_all_logs(
    config: RunConfig, tmp_path: Path
) -> None:
    stages = improve_loop(config, 2, tmp_path / "loop")
    assert [stage.folder.name for stage in stages] == ["run-0", "run-1", "run-2"]
    assert stages[0].learned is None
    pooled = [Log.from_journal(stage.folder) for stage in stages[:2]]
    assert stages[2].learned is not None
    assert list(stages[2].learned.policy["probabilities"].values()) == pytest.approx(
        improve(pooled).probabilities().tolist()
    )
    followed = Log.from_journal(stages[2].folder)
    assert followed.course is not None
    assert followed.course.rows[0] == pytest.approx(improve(pooled).probabilities(), abs=1e-8)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_loop_that_was_killed_goes_on_where_it_was(
    config: RunConfig, tmp_path: Path, stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = improve_loop(config, 2, tmp_path / "whole")
    ran: list[str] = []

    def dying(config: RunConfig, folder: Path, **_: object) -> None:
        if folder.name == f"run-{stage}":
            raise KilledError
        make_run(config, folder)

    def counting(config: RunConfig, folder: Path, **_: object) -> None:
        if not (folder / "scores.json").exists():
            ran.append(folder.name)
        make_run(config, folder)

    monkeypatch.setattr("taskmix.training.run.run", dying)
    with pytest.raises(KilledError):
        improve_loop(config, 2, tmp_path / "loop")
    monkeypatch.setattr("taskmix.training.run.run", counting)
    stages = improve_loop(config, 2, tmp_path / "loop")
    assert ran == [f"run-{i}" for i in range(stage, 3)]
    assert stages[2].learned == whole[2].learned


def test_a_loop_does_not_go_on_under_other_settings(config: RunConfig, tmp_path: Path) -> None:
    improve_loop(config, 1, tmp_path / "loop")
    improve_loop(config, 2, tmp_path / "loop")
    with pytest.raises(UserError, match="begun with other settings: entropy_weight was auto, now"):
        improve_loop(config, 2, tmp_path / "loop", ImproveSettings(entropy_weight=0.5))


def command(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_the_command_line_says_what_is_estimated_and_by_what(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    said = command("improve", "--from", "rewards", str(run), "-o", str(path))
    assert "by draws it was not learned from" in said
    assert "The estimate is for the models of these runs" in said
    assert "of 300 decisions (300 steps)" in said
    learned = json.loads(
        command("improve", "--from", "rewards", str(run), "-o", str(path), "--json")
    )
    assert learned["policy"] == yaml.safe_load(path.read_text())
    said = command("estimate", str(run), "--policy", str(path))
    assert "not learned from" not in said
    assert "The estimate is for the models of these runs" in said


def test_the_command_line_estimates_a_policy_by_name(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("name: random\n")
    by_file = command("estimate", str(run), "--policy", str(path))
    assert command("estimate", str(run), "--policy", "random") == by_file
    with pytest.raises(UserError, match="rundom"):
        command("estimate", str(run), "--policy", "rundom")


def test_the_command_line_overwrites_by_force_only(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("mine")
    with pytest.raises(UserError, match="--force"):
        command("improve", "--from", "rewards", str(run), "-o", str(path))
    command("improve", "--from", "rewards", str(run), "-o", str(path), "--force")
    assert read_policy(path, INFO)[0]["name"] == "fixed"


def test_the_command_line_says_why_there_is_no_interval(config: RunConfig, tmp_path: Path) -> None:
    short = config.model_copy(update={"budget": config.budget.model_copy(update={"steps": 20})})
    make_run(short, tmp_path / "short")
    said = command(
        "improve", "--from", "rewards", str(tmp_path / "short"), "-o", str(tmp_path / "p.yaml")
    )
    assert "(no interval: too few decisions)" in said


def scored_journal(path: Path, measure: Literal["score", "loss"] = "score") -> Path:
    """A run in name only, with evaluations: the first task is learned at once."""
    policy, rng = taskmix.Random(TASKS), stream(1, "draws")
    opening = Opening(
        "run", TASKS, SIZES, 1, {}, {"steps": 100, "batch": 1}, warmup=0.1, measure=measure
    )
    drawn = dict.fromkeys(TASKS, 0)
    with Journal.create(path, opening) as journal:
        for step in range(1, 101):
            draw = policy.ask(rng)
            drawn[draw.task] += 1
            journal.draw(step, Outcome(draw, loss=1.0))
            if step % 10 == 0:
                scores = {TASKS[0]: 0.7, TASKS[1]: 0.1 + drawn[TASKS[1]] / 100}
                losses = dict.fromkeys(TASKS, 1.0)
                journal.append(Evaluation(step, "dev", 0.5, scores, losses))
    return path


def test_the_command_learns_shares_from_scores(tmp_path: Path) -> None:
    journal, path = scored_journal(tmp_path / "journal.jsonl"), tmp_path / "policy.yaml"
    said = command("improve", str(journal), "-o", str(path), "--floor", "0.1")
    assert "Expected gain of the objective" in said
    spec, policy = read_policy(path, INFO)
    assert spec["name"] == "fixed"
    assert policy.probabilities()[1] > 0.8
    forecast = json.loads(command("improve", str(journal), "-o", str(path), "--json"))
    assert forecast["changed"]
    assert [task["task"] for task in forecast["tasks"]] == TASKS


@pytest.mark.parametrize("measures", [("loss", "score"), ("score", "loss")])
def test_the_measure_is_that_of_the_last_run(measures: Any, tmp_path: Path) -> None:
    paths = [scored_journal(tmp_path / f"{measure}.jsonl", measure) for measure in measures]
    learned = taskmix.improve(paths)
    assert isinstance(learned, LearnedMixture)
    last: Any = {"score": "scores", "loss": "losses"}[measures[1]]
    assert (learned.measure, learned) == (measures[1], taskmix.improve(paths, evidence=last))


def test_scores_need_evaluations(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected evaluations to learn from, found none"):
        command("improve", str(run), "-o", str(tmp_path / "p.yaml"))
    assert not (tmp_path / "p.yaml").exists()


def test_iterations_are_for_rewards(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--iterations: expected --from rewards"):
        command("improve", "--iterations", "2", "run.yaml")
