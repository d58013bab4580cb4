"""A run, finished or not, can be given a larger budget."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Evaluation, Extended, Step, read, without_times
from taskmix.report.page import write_run_report
from taskmix.tasks.task import Task
from taskmix.training import change
from taskmix.training.folder import config_of, finished
from taskmix.training.run import resume_run, run

Toys = Mapping[str, Task]
Toy = Callable[..., RunConfig]
Everything = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="module")
def finished_run(toy: Toy, toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 12 steps."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(toy(policy={"name": "exp3s", "eta": 0.1}), folder, tasks=toys)
    return folder


@pytest.fixture(scope="module")
def longer(finished_run: Path, toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with a budget of 20 steps."""
    folder = tmp_path_factory.mktemp("longer") / "run"
    shutil.copytree(finished_run, folder)
    resume_run(folder, tasks=toys, steps=20)
    return folder


@pytest.fixture
def done(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def steps_of(folder: Path) -> list[int]:
    return [record.step for record in read(folder / "journal.jsonl") if isinstance(record, Step)]


def test_a_finished_run_goes_on(finished_run: Path, longer: Path) -> None:
    before = [without_times(record) for record in read(finished_run / "journal.jsonl")]
    after = [without_times(record) for record in read(longer / "journal.jsonl")]
    assert after[: len(before)] == before
    budget = {"steps": 20, "rounds": 10, "batch": 4, "accumulate": 1}
    assert after[len(before)] == without_times(Extended(12, budget))
    assert steps_of(longer) == list(range(1, 21))
    scored = [r.step for r in read(longer / "journal.jsonl") if isinstance(r, Evaluation)]
    assert scored == [4, 8, 12, 16, 20]
    assert config_of(longer).budget.steps == 20
    assert not (longer / "change.json").exists()
    report = write_run_report(longer).read_text()
    assert "20 steps, batches of 4" in report
    assert "not finished" not in report


def test_the_best_model_so_far_is_kept_if_the_rest_is_no_better(
    done: Path, toys: Toys, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = finished(done)
    monkeypatch.setattr("taskmix.training.session.objective_value", lambda *_: -1.0)
    after = resume_run(done, tasks=toys, steps=16)
    assert after.step == before.step
    assert after.tasks == before.tasks


def test_learning_rates_are_those_of_the_larger_budget(done: Path, toys: Toys) -> None:
    """With a rate that falls to 0, the 13th step of 12 would be none at all."""
    rates: list[tuple[int, int]] = []

    def noted(step: int, steps: int, warmup: float) -> float:
        rates.append((step, steps))
        return 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taskmix.training.engine.rate_factor", noted)
        resume_run(done, tasks=toys, steps=14)
    assert set(rates) == {(13, 14), (14, 14)}


def test_a_longer_run_that_is_killed_ends_with_the_same_bits(
    done: Path,
    longer: Path,
    toys: Toys,
    everything: Everything,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
) -> None:
    with pytest.raises(interruption):
        resume_run(done, tasks=toys, steps=20, watchers=[interrupter(step=18)])
    resume_run(done, tasks=toys)
    assert everything(done) == everything(longer)


class KilledError(BaseException):
    """What ends a process at once."""


@pytest.mark.parametrize("name", ["write_whole", "_replace_end", "shutil.rmtree"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_change_that_is_killed_half_way_is_none_or_whole(
    name: str,
    call: int,
    done: Path,
    longer: Path,
    toys: Toys,
    everything: Everything,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, _, attribute = name.rpartition(".")
    place = getattr(change, owner) if owner else change
    real, calls = getattr(place, attribute), []

    def killing(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == call:
            raise KilledError
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(place, attribute, killing)
        with suppress(KilledError):
            change.extend(done, 20)
    if config_of(done).budget.steps == 12 and not (done / "change.json").exists():
        change.extend(done, 20)  # nothing was decided
    resume_run(done, tasks=toys)
    assert everything(done) == everything(longer)


def test_a_run_that_stopped_early_goes_on(
    toy: Toy, toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskmix.training.session.objective_value", lambda *_: 0.5)
    config = toy(evaluate={"every": 2, "patience": 1})
    run(config, tmp_path / "run", tasks=toys)
    assert steps_of(tmp_path / "run")[-1] == 4
    resume_run(tmp_path / "run", tasks=toys, steps=20)
    assert steps_of(tmp_path / "run")[-1] == 6


def test_a_weighting_is_given_rounds(toy: Toy, toys: Toys, tmp_path: Path) -> None:
    weighting = {"name": "alpha_vil", "target": "a"}
    config = toy(weighting=weighting, budget={"rounds": 2, "batch": 8}, evaluate={"every": 1})
    run(config, tmp_path / "run", tasks=toys)
    resume_run(tmp_path / "run", tasks=toys, steps=3)
    assert config_of(tmp_path / "run").budget.rounds == 3
    assert [r.step for r in read(tmp_path / "run" / "journal.jsonl") if r.kind == "round"] == [
        1,
        2,
        3,
    ]


def test_no_more_than_there_is_no_extension(done: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected more than the 12 steps of its budget, found 12"):
        resume_run(done, steps=12)
    shutil.rmtree(done / "checkpoints")
    with pytest.raises(UserError, match="expected a run with a checkpoint, found none"):
        resume_run(done, steps=20)
    (done / "change.json").write_text("{")
    with pytest.raises(UserError, match=r"change.json: expected a change of the run, found"):
        resume_run(done, steps=20)


@pytest.mark.parametrize(
    "policy",
    [
        {"name": "annealed", "epochs": 4},
        {"name": "annealed", "epochs": 4, "draws": "stratified"},
        {"name": "schedule", "phases": [{"a": 1, "b": 0, "c": 0}, {"a": 0, "b": 0, "c": 1}]},
        {"name": "aimed", "targets": ["c"]},
    ],
)
def test_a_policy_that_goes_by_the_budget_goes_by_the_larger_one(
    policy: dict[str, Any], toy: Toy, toys: Toys, tmp_path: Path
) -> None:
    run(toy(policy=policy), tmp_path / "run", tasks=toys)
    resume_run(tmp_path / "run", tasks=toys, steps=200)
    assert len(steps_of(tmp_path / "run")) == 200
