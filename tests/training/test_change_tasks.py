"""A task can be added to and dropped from a run that goes on."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Opening, Step, read
from taskmix.offpolicy import Log
from taskmix.records import UnitRecord
from taskmix.report.page import write_run_report
from taskmix.training.change import change_tasks
from taskmix.training.run import resume_run as resume
from taskmix.training.run import run
from taskmix.training.watching import Watcher


class StoppedError(Exception):
    """Ends a run from outside."""


class StopAt(Watcher):
    """A watcher that stops the run behind a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def advanced(self, record: UnitRecord) -> None:
        if record.step == self._step:
            raise StoppedError


@pytest.fixture
def policy() -> str:
    return "exp3s"


@pytest.fixture
def halfway(tmp_path: Path, policy: str) -> Path:
    """A run of two tasks that was stopped behind its checkpoint at step 10."""
    config = RunConfig(
        tasks=["digits/left", "digits/right"],
        policy=policy,
        budget={"steps": 20, "batch": 8},
        evaluate={"every": 5, "examples": 20},
        optimizer={"lr": 1e-3},
    )
    with pytest.raises(StoppedError):
        run(config, tmp_path / "run", watchers=[StopAt(11)])
    return tmp_path / "run"


def weights(folder: Path, step: int) -> dict[str, object]:
    return dict(load_file(folder / "checkpoints" / f"step-{step}" / "model.safetensors"))


def test_the_run_goes_on_with_the_new_tasks_from_the_same_step(halfway: Path) -> None:
    before = weights(halfway, 10)
    change_tasks(halfway, add=["digits/larger"], drop=["digits/right"])
    after = weights(halfway, 10)
    shared = before.keys() & after.keys()
    assert any("encoder" in name for name in shared)
    assert all((before[name] == after[name]).all() for name in shared)
    assert not any("digits/right" in name for name in after)
    finished = resume(halfway)
    assert list(finished.tasks) == ["digits/left", "digits/larger"]
    records = list(read(halfway / "journal.jsonl"))
    steps = [record.step for record in records if isinstance(record, Step)]
    assert steps == list(range(1, 21))
    late = {record.task for record in records if isinstance(record, Step) and record.step > 10}
    assert late == {"digits/left", "digits/larger"}
    assert [r.tasks for r in records if isinstance(r, Opening)] == [
        ["digits/left", "digits/right"],
        ["digits/left", "digits/larger"],
    ]


def test_a_changed_run_resumes_bit_for_bit(halfway: Path) -> None:
    change_tasks(halfway, add=["digits/larger"])
    with pytest.raises(StoppedError):
        resume(halfway, watchers=[StopAt(16)])
    resume(halfway)
    steps = [record.step for record in read(halfway / "journal.jsonl") if isinstance(record, Step)]
    assert steps == list(range(1, 21))


def test_what_cannot_be_changed_is_said_in_one_sentence(halfway: Path) -> None:
    with pytest.raises(UserError, match="unknown task 'digits/lef'"):
        change_tasks(halfway, drop=["digits/lef"])
    with pytest.raises(UserError, match="expected at least one task"):
        change_tasks(halfway, drop=["digits/left", "digits/right"])
    resume(halfway)
    with pytest.raises(UserError, match="unfinished run"):
        change_tasks(halfway, add=["digits/larger"])


@pytest.mark.parametrize("policy", ["exp3s", "random"])
def test_a_changed_run_is_reported_and_learned_from_since_the_change(halfway: Path) -> None:
    change_tasks(halfway, add=["digits/larger"], drop=["digits/left"])
    resume(halfway)
    log = Log.from_journal(halfway)
    assert list(log.tasks) == ["digits/right", "digits/larger"]
    assert len(log) == 10
    page = write_run_report(halfway).read_text()
    assert "digits/larger" in page
