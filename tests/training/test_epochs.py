"""`budget.epochs`: the steps follow from the rows of the tasks."""

import re
from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path

import pytest

from taskmix import RunConfig, compare, plan, resume, run
from taskmix.config import with_sets
from taskmix.errors import UserError
from taskmix.journal import Extended, Opening, read_latest
from taskmix.tasks.parts import rows_of
from taskmix.tasks.task import Task
from taskmix.training.change import change_tasks
from taskmix.training.folder import JOURNAL, config_of
from taskmix.training.watching import Watcher

Toy = Callable[..., RunConfig]


def rows(toys: Mapping[str, Task], config: RunConfig) -> int:
    return sum(rows_of(toys[name].split("train")) for name in config.task_names)


def test_a_run_of_epochs_has_their_steps(
    tmp_path: Path, toy: Toy, toys: Mapping[str, Task]
) -> None:
    config = toy(budget={"epochs": 0.5, "batch": 8}, evaluate={"keep": "last"})
    result = run(config, tmp_path / "run", tasks=toys)
    steps = ceil(0.5 * rows(toys, config) / 8)
    assert result.step == steps
    opening = next(iter(read_latest(tmp_path / "run" / JOURNAL)))
    assert isinstance(opening, Opening)
    assert opening.budget["steps"] == steps
    assert config_of(tmp_path / "run").budget.epochs == 0.5
    assert plan(config, tasks=toys).config.budget.steps == steps
    again = run(config, tmp_path / "run", tasks=toys, resume=True)
    assert again.score == result.score


def test_a_run_of_epochs_is_extended_in_steps(
    tmp_path: Path, toy: Toy, toys: Mapping[str, Task]
) -> None:
    config = toy(budget={"epochs": 0.25, "batch": 8}, evaluate={"keep": "last"})
    steps = run(config, tmp_path, tasks=toys).step
    assert resume(tmp_path, tasks=toys, steps=steps + 2).step == steps + 2
    assert config_of(tmp_path).budget.epochs is None
    assert any(isinstance(record, Extended) for record in read_latest(tmp_path / JOURNAL))


def test_a_run_of_epochs_keeps_its_steps_with_other_tasks(
    tmp_path: Path, interrupter: Callable[..., Watcher], interruption: type[Exception]
) -> None:
    settings = {
        "tasks": ["digits/larger", "digits/left"],
        "checkpoint": {"every": 2},
        "evaluate": {"keep": "last"},
    }
    with pytest.raises(interruption):
        run(settings | {"budget": {"epochs": 0.05}}, tmp_path, watchers=[interrupter(step=3)])
    change_tasks(tmp_path, drop=["digits/left"])
    budget = config_of(tmp_path).budget
    assert (budget.epochs, budget.steps) == (None, ceil(0.05 * 1350 / 16))
    assert resume(tmp_path).step == budget.steps


def test_each_task_alone_has_its_own_epochs(
    tmp_path: Path, toy: Toy, toys: Mapping[str, Task]
) -> None:
    config = toy(budget={"epochs": 0.5, "batch": 8}, evaluate={"keep": "last"})
    compare(config, ["alone"], [1], tmp_path, tasks=toys)
    for folder in (tmp_path / "alone/seed-1").iterdir():
        single = config_of(folder)
        assert single.budget.steps == ceil(0.5 * rows(toys, single) / 8)


def test_steps_on_the_command_line_replace_epochs(toy: Toy) -> None:
    config = with_sets(toy(budget={"epochs": 3}), ["budget.steps=7"])
    assert (config.budget.epochs, config.budget.steps) == (None, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": {"epochs": 0}}, "greater than 0"),
        ({"budget": {"epochs": 1, "tokens": 100}}, "epochs: expected batch with it"),
        (
            {
                "policy": None,
                "weighting": {"name": "joint", "target": "a"},
                "budget": {"epochs": 1},
            },
            "budget.epochs: expected steps, found a weighting's rounds",
        ),
    ],
)
def test_wrong_epochs_are_one_sentence(toy: Toy, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        toy(**changes)


def test_a_plan_names_repeated_tasks_and_small_dev_sets(
    toy: Callable[..., RunConfig], toys: Mapping[str, Task]
) -> None:
    config = toy(policy="aimed", objective="c", budget={"steps": 2000, "batch": 8})
    sentences = str(plan(config, tasks=toys, cost=False))
    [sentence] = re.findall(r"aimed draws repeated examples less often: (.*)\.", sentences)
    assert re.fullmatch(r"c \d+% instead of 95% \(\d+\.\d epochs\)", sentence)
    assert "Few dev rows" not in sentences  # 30 of each
    few = toy(evaluate={"examples": 29})
    assert "Few dev rows: a has 29, b has 29" in str(plan(few, tasks=toys, cost=False))
