"""A target with few examples beside a task that helps it, in real trainings."""

from pathlib import Path
from typing import Any

import pytest

from experiments.auxiliaries import PRIMARY, auxiliary_tasks, network
from taskmix.journal import Step, read
from taskmix.training.run import run

CONFIG = {
    "objective": PRIMARY,
    "budget": {"steps": 400, "batch": 16},
    "optimizer": {"lr": 3e-3, "head_factor": 1},
    "evaluate": {"every": 400, "keep": "last"},
    "seed": 501,
}


@pytest.fixture
def trained(tmp_path: Path) -> Any:
    """Trains with a policy, and returns the target's score and its share of the draws."""

    def train(policy: dict[str, Any]) -> tuple[float, float]:
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        config = CONFIG | {"policy": policy}
        found = run(config, folder, model=network(501)(), tasks=auxiliary_tasks(501))
        drawn = [each.task for each in read(folder / "journal.jsonl") if isinstance(each, Step)]
        return found.tasks[PRIMARY].score, drawn.count(PRIMARY) / len(drawn)

    return train


def test_a_tiny_target_leaves_draws_to_a_task_that_helps_it(trained: Any) -> None:
    """Of ten seeds elsewhere each was above, by 16 points in the mean (experiments/mixtures)."""
    score, share = trained({"name": "aimed"})
    repeated, always = trained({"name": "aimed", "repeats": None})
    assert 0.3 < share < 0.5
    assert always > 0.9
    assert score > repeated + 0.05
