"""What can be found before a training is found before anything is written."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bursar.config import RunConfig
from bursar.errors import UserError
from bursar.tasks.task import Task
from bursar.training.plan import plan
from bursar.training.run import run

Toys = Mapping[str, Task]
Toy = Callable[..., RunConfig]


def refused(config: Any, folder: Path, words: str, **more: Any) -> None:
    """A run is one sentence, and leaves nothing behind."""
    with pytest.raises(UserError, match=words):
        run(config, folder, **more)
    assert not folder.exists()


def test_a_batch_that_is_larger_than_its_task_is_said(
    toy: Toy, toys: Toys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run(toy(budget={"steps": 2, "batch": 25}), tmp_path / "run", tasks=toys)
    assert caplog.messages == [
        "c: a batch has all of its 10 training examples, fewer than budget.batch=25"
    ]
    caplog.clear()
    plan(RunConfig(tasks=["digits/left"], budget={"batch": 5000}))
    assert "digits/left: a batch has all of its" in caplog.text


def test_weightings_of_parts_are_refused_before_anything_is_written(
    toy: Toy, toys: Toys, tmp_path: Path
) -> None:
    weighting = {"name": "alpha_vil", "target": "a"}
    config = toy(weighting=weighting, budget={"rounds": 1, "accumulate": 2})
    refused(config, tmp_path / "run", r"budget.accumulate: expected 1", tasks=toys)


def test_a_dev_split_that_cannot_be_halved_is_refused(toy: Toy, toys: Toys, tmp_path: Path) -> None:
    config = toy(
        weighting={"name": "alpha_vil", "target": "a"},
        budget={"rounds": 1},
        evaluate={"examples": 1},
    )
    refused(config, tmp_path / "run", "cannot be halved", tasks=toys)


def test_a_score_that_a_task_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("text,y\n" + "".join(f"number {row},{row}\n" for row in range(8)))
    task = {"name": "n", "kind": "regress", "train": str(path), "dev": str(path)}
    config = {
        "tasks": [task | {"text": "text", "label": "y"}],
        "model": {"encoder": "small", "width": 16, "vocabulary": 64},
        "policy": {"name": "active", "score": "legacy"},
    }
    refused(config, tmp_path / "run", "'legacy' is not defined for a regression such as n")
