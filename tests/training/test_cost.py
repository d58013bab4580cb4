"""A plan estimates what a run will cost: its time from a few steps, its disk from its tensors."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taskmix.config import RunConfig
from taskmix.studies.plan import plan
from taskmix.training import cost
from taskmix.training.engine import Engine
from taskmix.training.policy import PolicyDriver
from taskmix.training.run import run

Taskmix = Callable[..., Any]
TASKS = ["digits/left", "digits/right"]
STEP, EVALUATION = 0.1, 0.01


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which a step and the evaluation of a task take as long as above."""
    now = [0.0]
    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def taking(function: Any, seconds: float) -> Any:
        def slow(*words: Any) -> Any:
            now[0] += seconds
            return function(*words)

        return slow

    monkeypatch.setattr(PolicyDriver, "advance", taking(PolicyDriver.advance, STEP))
    monkeypatch.setattr(Engine, "evaluate", taking(Engine.evaluate, EVALUATION))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        ({"steps": 500}, 500),
        ({"steps": 500, "count": "examples"}, 500),
        # Exp3.S passes each batch forward once more: two thirds of the plain steps.
        ({"steps": 500, "count": "compute"}, 1000 / 3),
    ],
)
def test_the_time_is_that_of_the_steps_and_the_evaluations(
    budget: dict[str, Any], steps: float
) -> None:
    config = RunConfig(tasks=TASKS, policy="exp3s", budget=budget, evaluate={"examples": 128})
    found = plan(config).cost
    assert found is not None
    assert found.timed_steps == 20  # until two seconds have passed
    evaluations = 10 * len(TASKS) * EVALUATION * 128 / 64
    assert found.seconds == pytest.approx(STEP * steps + evaluations)


@pytest.mark.parametrize("optimizer", [{}, {"name": "sgd"}, {"name": "sgd", "momentum": 0.0}])
def test_a_checkpoint_has_the_estimated_size(optimizer: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(
        tasks=TASKS,
        policy={"name": "cycle", "ratio": dict.fromkeys(TASKS, 1)},
        budget={"steps": 4, "batch": 4},
        evaluate={"examples": 10},
        optimizer={"lr": 1e-3, **optimizer},
        checkpoint={"keep": 3},
    )
    found = plan(config).cost
    assert found is not None
    run(config, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints" / "step-4"
    written = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert found.disk_bytes / 5 == pytest.approx(written, rel=0.02)


def test_what_cannot_be_timed_is_said_or_left_out() -> None:
    selected = plan({"tasks": TASKS, "selection": "mt_uncertainty", "budget": {"steps": 4}})
    assert selected.cost is not None
    assert selected.cost.seconds is None
    assert "The time of a selector's steps is not measured." in repr(selected)
    weighting = {"name": "alpha_vil", "target": TASKS[0]}
    rounds = {"tasks": TASKS, "weighting": weighting, "budget": {"rounds": 2}}
    assert plan(rounds, cost=True).cost is None
    assert plan({"tasks": TASKS, "budget": {"steps": 4}}, cost=False).cost is None


def test_no_model_is_downloaded_for_a_plan_unless_asked(tmp_path: Path) -> None:
    def cheap(**model: Any) -> bool:
        return cost.is_cheap(RunConfig(tasks=TASKS, model=model))

    assert cheap()
    assert cheap(encoder=str(tmp_path))
    assert not cheap(encoder="bert-base-uncased")
    assert not cheap(encoder="bilstm", over="minilm")


def test_a_plan_as_json(taskmix: Taskmix, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"name: small\ntasks: {json.dumps(TASKS)}\nbudget: {{steps: 6, batch: 4}}\n")
    values = json.loads(taskmix("plan", file, "--json").out)
    assert values["name"] == "small"
    assert values["policy"] == {"name": "aimed"}
    assert values["budget"] == {"steps": 6, "batch": 4, "tokens": None, "count": "steps"}
    assert [task["task"] for task in values["tasks"]] == TASKS
    assert values["cost"]["seconds"] > 0
    assert json.loads(taskmix("plan", file, "--json", "--no-cost").out)["cost"] is None
