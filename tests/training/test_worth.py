"""Worth in a real training: what it lets go, what it measures for that, and a stop in between."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from taskmix.config import RunConfig
from taskmix.journal import Shares, Step, read
from taskmix.tasks.task import Task
from taskmix.training.run import resume_run, run

Toys = Mapping[str, Task]
Toy = Callable[..., RunConfig]
NEW = {"name": "worth", "epochs": {"a": 0.0, "b": 0.0, "c": 0.0}}
"""As if no example was seen twice: then losses that stop say that a task has learned."""
LONG: dict[str, Any] = {"budget": {"steps": 200, "batch": 8}, "evaluate": {"every": 200}}


def test_a_task_that_has_learned_is_measured_once_and_let_go(
    toy: Toy, toys: Toys, tmp_path: Path
) -> None:
    done = run(toy(policy=NEW, **LONG), tmp_path, tasks=toys)
    records = list(read(tmp_path / "journal.jsonl"))
    measured = [each for each in records if isinstance(each, Step) and each.skill is not None]
    let_go = [each.task for each in measured if each.skill is not None and each.skill >= 0.25]
    assert let_go
    assert len(set(let_go)) == len(let_go)
    shares = [each.shares for each in records if isinstance(each, Shares)]
    assert min(each["abc".index(let_go[0])] for each in shares) < 0.2
    passed = sum(each.examples or 0 for each in records if isinstance(each, Step))
    # Every dev split has 30 rows; the last evaluation is no signal.
    assert done.forward == passed + 30 * len(measured)


def test_a_stop_between_a_skill_and_what_comes_of_it_changes_nothing(
    toy: Toy,
    toys: Toys,
    everything: Callable[[Path], dict[str, Any]],
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    config = toy(policy=NEW, checkpoint={"every": 7}, **LONG)
    run(config, tmp_path / "alone", tasks=toys)
    records = read(tmp_path / "alone" / "journal.jsonl")
    [first, *_] = [each for each in records if isinstance(each, Step) and each.skill is not None]
    with pytest.raises(interruption):
        run(config, tmp_path / "stopped", tasks=toys, watchers=[interrupter(step=first.step)])
    resume_run(tmp_path / "stopped", tasks=toys)
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")
