"""What a run is for: the model to keep, early stopping and pruning read one setting."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Evaluation, read
from taskmix.tasks.task import Task
from taskmix.training.run import run

Toys = Mapping[str, Task]


def evaluations(folder: Path) -> list[Evaluation]:
    return [record for record in read(folder / "journal.jsonl") if isinstance(record, Evaluation)]


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("b", lambda e: e.scores["b"]),
        (["a", "c"], lambda e: (e.scores["a"] + e.scores["c"]) / 2),
        ({"loss": "b"}, lambda e: -e.losses["b"]),
        ({"loss": ["a", "b"]}, lambda e: -(e.losses["a"] + e.losses["b"]) / 2),
        (None, lambda e: e.score),
    ],
)
def test_the_model_to_keep_has_the_highest_objective(
    said: Any, value: Any, toys: Toys, toy: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = toy(objective=said, evaluate={"every": 1})
    done = run(config, tmp_path / "run", tasks=toys)
    found = evaluations(tmp_path / "run")
    assert [each.objective for each in found] == pytest.approx([value(each) for each in found])
    first = max(found, key=lambda each: (each.objective, -each.step))
    assert (done.step, done.objective) == (first.step, first.objective)
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["objective"] == done.objective


def test_early_stopping_waits_for_the_objective_and_nothing_else(
    toys: Toys, toy: Callable[..., RunConfig], tmp_path: Path
) -> None:
    ends = []
    for number, said in enumerate(("a", {"loss": "a"}, "c")):
        folder = tmp_path / str(number)
        evaluate, budget = {"every": 2, "patience": 4}, {"steps": 60, "batch": 8}
        run(toy(objective=said, evaluate=evaluate, budget=budget), folder, tasks=toys)
        values = [each.objective for each in evaluations(folder)]
        best = max(range(len(values)), key=lambda k: (values[k], -k))
        assert len(values) == min(30, best + 1 + 4)
        ends.append(len(values))
    assert len(set(ends)) > 1  # other objectives, other ends


def test_an_objective_of_a_task_that_is_not_there_is_one_sentence(
    toys: Toys, toy: Callable[..., RunConfig], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="objective: unknown task 'd'"):
        run(toy(objective="d"), tmp_path / "run", tasks=toys)
    assert not (tmp_path / "run").exists()
