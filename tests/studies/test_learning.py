"""The commands that learn from runs, and those beside them, as functions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import taskmix
from taskmix.errors import UserError
from taskmix.integrations.prime_rl import EnvironmentMix
from taskmix.mixing import Decisions
from taskmix.offpolicy import Log
from taskmix.offpolicy import estimate as estimate_logs

Command = Callable[..., Any]
TASKS = ["digits/left", "digits/right"]
CONFIG: dict[str, Any] = {
    "name": "small",
    "tasks": TASKS,
    "policy": "exp3s",
    "budget": {"steps": 120, "batch": 4},
    "evaluate": {"every": 40, "examples": 20},
    "optimizer": {"lr": 3e-3},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    taskmix.run(CONFIG, folder)
    return folder


@pytest.mark.parametrize(
    "policy",
    [
        taskmix.TaskSize({"digits/left": 1200, "digits/right": 400}),
        "task_size",
        {"name": "task_size"},
        {"digits/left": 0.75, "digits/right": 0.25},
    ],
    ids=["object", "name", "mapping", "shares"],
)
def test_a_policy_is_estimated_by_any_of_its_names(run: Path, policy: Any) -> None:
    result = taskmix.estimate(run, policy)
    assert [share.now for share in result.shares] == pytest.approx([0.75, 0.25])
    assert estimate_logs(Log.from_journal(run), policy) == result.estimate
    assert "Effective sample size" in repr(result)
    assert "<table>" in result._repr_html_()


def test_a_policy_file_is_estimated_as_the_command_does(
    run: Path, tmp_path: Path, taskmix: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    from taskmix import estimate

    (tmp_path / "policy.yaml").write_text("name: task_size\n")
    result = estimate([run], str(tmp_path / "policy.yaml"))
    said = taskmix("estimate", run, "--policy", tmp_path / "policy.yaml").out
    assert f"{result.estimate.value:.4f} estimated" in said


def test_a_log_without_sizes_takes_no_policy_by_its_name() -> None:
    log = Log(["a", "b"], [0, 1] * 50, [[0.5, 0.5]] * 100, [0.0, 1.0] * 50)
    with pytest.raises(UserError, match="the log knows no sizes of tasks, found 'task_size'"):
        estimate_logs(log, "task_size")
    assert estimate_logs(log, {"a": 0.25, "b": 0.75}).value == 0.75


def test_shares_are_learned_and_written_only_where_asked(run: Path, tmp_path: Path) -> None:
    mixture = taskmix.improve(run)
    assert sorted(mixture.shares) == TASKS
    rewards = taskmix.improve([str(run)], tmp_path / "p.yaml", evidence="rewards", phases=2)
    assert rewards.policy["name"] == "schedule"
    assert list(tmp_path.iterdir()) == [tmp_path / "p.yaml"]
    assert taskmix.estimate(run, tmp_path / "p.yaml").policy == rewards.policy


def test_a_mixture_is_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tuning = taskmix.tune(CONFIG, pilot_budget=40)
    assert [tuned.scored[0].schedule.steps for tuned in tuning.runs] == [40, 120]
    assert (tmp_path / "studies" / "small-tuned" / "run-1" / "scores.json").exists()
    assert "predicted" in repr(tuning)


def test_a_comparison_has_the_defaults_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = {**CONFIG, "budget": {"steps": 2, "batch": 4}}
    comparison = taskmix.compare(short)
    assert list(comparison.folders) == ["random", "exp3s"]
    assert (tmp_path / "studies" / "small" / "compare.yaml").exists()
    again = taskmix.compare({**short, "name": "uniform", "policy": "random"})
    assert list(again.folders) == ["random", "aimed"]


def test_the_result_of_a_run_is_a_table(run: Path) -> None:
    result = taskmix.load(run).result
    lines = repr(result).splitlines()
    assert lines[0].split() == ["task", "loss", "score", "baseline"]
    assert [line.split()[0] for line in lines[1:4]] == [*TASKS, "mean"]
    assert json.loads((run / "scores.json").read_text())["step"] == result.step
    assert "<td>mean</td>" in result._repr_html_()


@pytest.mark.parametrize("policy", ["dump", {"name": "dump"}, taskmix.DUMP(["math", "code"])])
def test_environments_are_mixed_by_a_policy_of_any_name(policy: Any) -> None:
    mix = EnvironmentMix(policy, {"math": 100, "code": 50}, seed=1)
    assert mix.policy.name == "dump"
    assert mix.pick() in ("math", "code")


def test_decisions_know_the_sizes_for_a_policy_by_its_name() -> None:
    decisions = Decisions("task_size", {"a": 300, "b": 100}, seed=1)
    assert decisions.policy.probabilities().tolist() == [0.75, 0.25]
    with pytest.raises(UserError, match="sizes: expected those of all tasks for the policy"):
        Decisions("task_size", seed=1)
