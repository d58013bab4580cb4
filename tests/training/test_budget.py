"""Budgets that count steps, examples or compute: where runs end, and how they go on."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Evaluation, Opening, read
from taskmix.records import UnitRecord
from taskmix.schedule import rate_factor
from taskmix.tasks.task import Task
from taskmix.training.budget import Spent, counted, is_due, is_spent, part_spent, place_of, total
from taskmix.training.change import change_tasks
from taskmix.training.run import resume_run, run

STEPS, BATCH = 30, 4
DECIDERS: list[dict[str, Any]] = [
    {"policy": "random"},
    {"policy": {"name": "exp3s", "eta": 0.1}},
    {"policy": {"name": "active", "every": 5, "passes": 2, "examples": 10}},
    {"selection": "mt_uncertainty"},
    {"weighting": {"name": "diw", "target": "a", "fraction": 0.1, "tries": 1}},
]
any_decider = pytest.mark.parametrize(
    "decider", DECIDERS, ids=["random", "exp3s", "active", "mt_uncertainty", "diw"]
)
either = pytest.mark.parametrize("count", ["examples", "compute"])


def budget(count: str, steps: int = STEPS) -> dict[str, Any]:
    return {"steps": steps, "batch": BATCH, "count": count}


def config(count: str, steps: int = STEPS, **more: Any) -> RunConfig:
    return RunConfig(tasks=["a"], budget=budget(count, steps), **more)


def test_a_budget_counts_what_it_says() -> None:
    spent = Spent(forward=50, backward=30)
    assert [counted(config(count), 7, spent) for count in ("steps", "examples", "compute")] == [
        7,
        30,
        80,
    ]
    assert [total(config(count)) for count in ("steps", "examples", "compute")] == [30, 120, 240]
    assert part_spent(config("compute"), 7, spent) == pytest.approx(80 / 240)


def test_a_run_of_plain_steps_has_the_end_and_the_rates_of_as_many_steps() -> None:
    for count, cost in (("examples", 4), ("compute", 8)):
        asked = config(count)
        for step in range(STEPS):
            spent = Spent(forward=BATCH * step, backward=BATCH * step)
            assert counted(asked, step, spent) == cost * step
            assert not is_spent(asked, step, spent)
            assert place_of(asked, step + 1, spent) == (step + 1, STEPS)
        assert is_spent(asked, STEPS, Spent(BATCH * STEPS, BATCH * STEPS))


def test_steps_that_cost_more_are_fewer_and_their_rates_go_by_what_was_spent() -> None:
    """Each step passes three batches forward and one backward: twice the cost of a plain one."""
    asked, step, places = config("compute"), 0, []
    while not is_spent(asked, step, Spent(3 * BATCH * step, BATCH * step)):
        places.append(place_of(asked, step + 1, Spent(3 * BATCH * step, BATCH * step)))
        step += 1
    assert step == STEPS / 2
    assert [place for place, _ in places] == [1 + 2 * k for k in range(step)]
    rates = [rate_factor(place, length, 0.1) for place, length in places]
    assert rates == [rate_factor(1 + 2 * k, STEPS, 0.1) for k in range(step)]
    assert all(rate > 0 for rate in rates)


def test_rounds_end_when_an_average_one_does_not_fit() -> None:
    asked = config("examples", weighting={"name": "diw", "target": "a"})
    assert not is_spent(asked, 0, Spent())
    assert not is_spent(asked, 2, Spent(0, 80))  # a third would come to 120
    assert is_spent(asked, 2, Spent(0, 81))
    assert is_spent(asked, 1, Spent(0, 1000))


def test_what_is_due_at_tenths_is_due_once_for_each_that_is_passed() -> None:
    asked = config("compute", steps=100)  # of 800 passes, a tenth is 80
    passes = [0, 79, 80, 81, 159, 300, 800]
    due = [
        is_due(asked, None, step, before, now)
        for step, (before, now) in enumerate(pairwise(passes), 1)
    ]
    assert due == [False, True, False, False, True, True]
    assert [is_due(asked, 3, step, 0, 800) for step in (2, 3)] == [False, True]


def test_a_run_of_one_task_is_the_same_whatever_its_budget_counts(
    toys: Mapping[str, Task], tmp_path: Path
) -> None:
    """All its batches are whole, so that its steps are plain."""
    results = {
        count: run(
            RunConfig(tasks=["a"], budget=budget(count), evaluate={"every": 3}),
            tmp_path / count,
            tasks=toys,
        )
        for count in ("steps", "examples", "compute")
    }
    assert results["examples"] == results["compute"] == results["steps"]
    models = [(tmp_path / count / "model" / "model.safetensors") for count in results]
    weights = [path.read_bytes() for path in models]
    assert weights[0] == weights[1] == weights[2]


def last_cost(folder: Path) -> int:
    """An upper limit of what a unit may cost beside a plain step, or a round: by the journal."""
    found = [each for each in read(folder / "journal.jsonl") if isinstance(each, Evaluation)]
    costs = [each.forward + each.backward for each in found]
    return max(after - before for before, after in pairwise([0, *costs]))


@either
@any_decider
def test_every_decider_gets_as_much(
    decider: dict[str, Any], count: str, toys: Mapping[str, Task], tmp_path: Path
) -> None:
    often = {"every": 1, "examples": 2}
    asked = RunConfig(tasks=list(toys), budget=budget(count, 12), evaluate=often, **decider)
    done = run(asked, tmp_path / "run", tasks=toys)
    used = done.backward if count == "examples" else done.forward + done.backward
    assert used <= total(asked) + last_cost(tmp_path / "run")
    assert used > total(asked) - last_cost(tmp_path / "run")
    if "policy" in decider and count == "examples":
        assert used <= total(asked)


@pytest.mark.parametrize("place", [1, 3, 4], ids=["exp3s", "mt_uncertainty", "diw"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    place: int,
    toys: Mapping[str, Task],
    everything: Callable[[Path], dict[str, Any]],
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    asked = RunConfig(tasks=list(toys), budget=budget("compute", 60), **DECIDERS[place])
    whole_run = run(asked, tmp_path / "whole", tasks=toys)
    with pytest.raises(interruption):
        run(asked, tmp_path / "stopped", tasks=toys, watchers=[interrupter(step=2)])
    assert resume_run(tmp_path / "stopped", tasks=toys) == whole_run
    assert everything(tmp_path / "stopped") == everything(tmp_path / "whole")


def test_all_are_scored_ten_times_however_many_steps_they_take(
    toys: Mapping[str, Task], tmp_path: Path
) -> None:
    steps = []
    for decider in (DECIDERS[0], DECIDERS[1], DECIDERS[3]):
        folder = tmp_path / str(len(steps))
        run(RunConfig(tasks=list(toys), budget=budget("compute"), **decider), folder, tasks=toys)
        records = list(read(folder / "journal.jsonl"))
        assert sum(isinstance(each, Evaluation) for each in records) == 10
        steps.append(sum(isinstance(each, UnitRecord) for each in records))
        assert isinstance(records[0], Opening)
        assert records[0].count == "compute"
    random, exp3s, selected = steps
    assert exp3s < 0.75 * random  # a gain is one pass more beside two
    assert selected < exp3s  # candidates of three tasks


def test_a_larger_budget_is_given_in_steps_and_other_tasks_only_before_the_end(
    toys: Mapping[str, Task], tmp_path: Path
) -> None:
    asked = RunConfig(tasks=list(toys), budget=budget("compute", 10), **DECIDERS[1])
    done = run(asked, tmp_path / "run", tasks=toys)
    with pytest.raises(UserError, match="expected more than the 10 steps"):
        resume_run(tmp_path / "run", tasks=toys, steps=10)
    longer = resume_run(tmp_path / "run", tasks=toys, steps=20)
    assert longer.forward + longer.backward > done.forward + done.backward
    assert 0 <= 20 * 2 * BATCH + BATCH - (longer.forward + longer.backward) < 3 * BATCH


def test_tasks_are_not_changed_when_all_is_spent(toys: Mapping[str, Task], tmp_path: Path) -> None:
    asked = RunConfig(tasks=["a", "b"], budget=budget("compute", 10))
    run(asked, tmp_path / "run", tasks=toys)
    (tmp_path / "run" / "scores.json").unlink()
    with pytest.raises(UserError, match="all 10 steps of its budget are spent"):
        change_tasks(tmp_path / "run", drop=["b"], tasks=toys)
