"""A run that was stopped goes on bit for bit as if it never had been."""

import errno
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from taskmix.config import RunConfig, asked_for, dump
from taskmix.errors import RunInterruptedError, TaskmixError, UserError
from taskmix.files import hash_of
from taskmix.journal import Step, read
from taskmix.records import UnitRecord
from taskmix.selection import SELECTORS
from taskmix.tasks.task import Task
from taskmix.training import checkpoints
from taskmix.training.folder import config_of
from taskmix.training.run import resume_run as resume
from taskmix.training.run import run
from taskmix.training.watching import Watcher
from taskmix.weighting import WEIGHTINGS

Toys = Mapping[str, Task]
Toy = Callable[..., RunConfig]
Everything = Callable[[Path], dict[str, Any]]
SCRIPT = Path(__file__).parents[2] / "scripts" / "kill_and_resume.py"


def test_every_policy_goes_on_where_it_was_stopped(
    any_policy: dict[str, Any],
    toys: Toys,
    toy: Toy,
    everything: Everything,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    config = toy(policy=any_policy, budget={"steps": 14, "batch": 4}, checkpoint={"every": 3})
    run(config, tmp_path / "alone", tasks=toys)

    with pytest.raises(interruption, match="step 5"):
        run(config, tmp_path / "stopped", tasks=toys, watchers=[interrupter(step=5)])
    with pytest.raises(interruption, match="evaluation 8"):
        resume(tmp_path / "stopped", tasks=toys, watchers=[interrupter(evaluation=8)])
    with pytest.raises(interruption, match="step 14"):
        resume(tmp_path / "stopped", tasks=toys, watchers=[interrupter(step=14)])
    resume(tmp_path / "stopped", tasks=toys)

    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")


@pytest.mark.parametrize(
    "decider",
    [{"selection": {"name": cls.name}} for cls in SELECTORS]
    + [{"weighting": {"name": cls.name, "target": "c"}} for cls in WEIGHTINGS],
    ids=[cls.name for cls in (*SELECTORS, *WEIGHTINGS)],
)
def test_every_selector_and_weighting_goes_on_where_it_was_stopped(
    decider: dict[str, Any],
    toys: Toys,
    toy: Toy,
    everything: Everything,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    budget = {"steps": 5, "rounds": 5, "batch": 8}
    config = toy(**decider, budget=budget, evaluate={"every": 2})
    run(config, tmp_path / "alone", tasks=toys)
    with pytest.raises(interruption, match="step 3"):
        run(config, tmp_path / "stopped", tasks=toys, watchers=[interrupter(step=3)])
    with pytest.raises(interruption, match="evaluation 4"):
        resume(tmp_path / "stopped", tasks=toys, watchers=[interrupter(evaluation=4)])
    resume(tmp_path / "stopped", tasks=toys)
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")


def test_killed_processes_leave_runs_that_go_on_bit_for_bit(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--kills", "5", "--policies", "exp3s,cycle,alpha_vil"]
    done = subprocess.run(
        [*command, "--steps", "12", "--out", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(" (")[0] for line in done.stdout.splitlines()] == [
        "exp3s: the same after 5 kills",
        "cycle: the same after 5 kills",
        "alpha_vil: the same after 5 kills",
    ]


def write_texts(path: Path, rows: int, words: tuple[str, str]) -> None:
    lines = [f"this is {words[row % 2]} thing number {row},{row % 2}" for row in range(rows)]
    path.write_text("\n".join(["text,y", *lines]) + "\n")


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("texts")
    entries = []
    for name, rows, words in (("mood", 20, ("good", "bad")), ("size", 9, ("large", "small"))):
        for split in ("train", "dev"):
            write_texts(folder / f"{name}-{split}.csv", rows, words)
        files = {split: str(folder / f"{name}-{split}.csv") for split in ("train", "dev")}
        entries.append({"name": name, **files, "text": "text", "label": "y"})
    return entries


SMALL = {
    "encoder": "small",
    "layers": 1,
    "width": 32,
    "attention_heads": 2,
    "vocabulary": 200,
    "max_length": 16,
    "dropout": 0.2,
}


@pytest.mark.parametrize(
    "policy",
    [
        {"name": "exp3s", "eta": 0.1},
        {"name": "thompson", "primary": "size", "batches": 2},
        {"name": "active", "every": 2, "passes": 2},
    ],
    ids=lambda policy: policy["name"],
)
def test_a_transformer_with_dropout_goes_on_bit_for_bit(
    policy: dict[str, Any],
    texts: list[dict[str, Any]],
    everything: Everything,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    config = RunConfig.model_validate(
        {
            "tasks": texts,
            "model": SMALL,
            "policy": policy,
            "budget": {"steps": 9, "batch": 4, "accumulate": 2},
            "evaluate": {"every": 3},
        }
    )
    run(config, tmp_path / "alone")
    with pytest.raises(interruption):
        run(config, tmp_path / "stopped", watchers=[interrupter(step=5)])
    torch.manual_seed(0)  # a fresh process would not have this one's state either
    resume(tmp_path / "stopped")
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")


def test_a_finished_run_is_read_and_not_run_again(toys: Toys, toy: Toy, tmp_path: Path) -> None:
    first = run(toy(), tmp_path / "run", tasks=toys)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.*")}
    assert resume(tmp_path / "run", tasks=toys) == first
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.*")}
    before.pop(tmp_path / "run" / ".lock", None)
    after.pop(tmp_path / "run" / ".lock", None)
    assert after == before


def test_a_run_without_a_checkpoint_starts_again(
    toys: Toys,
    toy: Toy,
    everything: Everything,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    run(toy(), tmp_path / "alone", tasks=toys)
    with pytest.raises(interruption):
        run(toy(), tmp_path / "stopped", tasks=toys, watchers=[interrupter(step=1)])
    resume(tmp_path / "stopped", tasks=toys)
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")


class Stopped:
    """A run that was stopped behind step 6, with a checkpoint of step 4."""

    def __init__(self, folder: Path, toys: Toys) -> None:
        self.folder = folder
        self.toys = toys

    def resumes_to(self, expected: Any, everything: Everything) -> None:
        resume(self.folder, tasks=self.toys)
        assert everything(self.folder) == expected


@pytest.fixture
def stopped(
    toys: Toys,
    toy: Toy,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> Stopped:
    with pytest.raises(interruption):
        run(toy(), tmp_path / "stopped", tasks=toys, watchers=[interrupter(step=6)])
    return Stopped(tmp_path / "stopped", toys)


@pytest.fixture(scope="module")
def expected(
    toys: Toys, toy: Toy, everything: Everything, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("expected") / "run"
    run(toy(), folder, tasks=toys)
    return everything(folder)


@pytest.mark.parametrize("after", [0, 1])
def test_a_full_disk_during_a_checkpoint_leaves_the_one_before_whole(
    after: int,
    stopped: Stopped,
    expected: dict[str, Any],
    everything: Everything,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save, left = checkpoints.save_file, [after]

    def full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        save(tensors, path)
        if not left[0]:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(RunInterruptedError, match=r"No space left.*taskmix resume") as caught:
        resume(stopped.folder, tasks=stopped.toys)
    assert caught.value.exit_code == 1
    assert [path.name for path in (stopped.folder / "checkpoints").iterdir()] == ["step-4"]
    monkeypatch.undo()
    stopped.resumes_to(expected, everything)


def test_a_torn_journal_line_is_cut_off(
    stopped: Stopped, expected: dict[str, Any], everything: Everything
) -> None:
    with (stopped.folder / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind":"step","st')
    stopped.resumes_to(expected, everything)


def test_a_run_of_version_0_1_resumes(
    stopped: Stopped, expected: dict[str, Any], everything: Everything
) -> None:
    """Its run.yaml has no section `resolved`, and its checkpoint holds the hash of that file."""
    file = stopped.folder / "run.yaml"
    file.write_text(dump(asked_for(config_of(stopped.folder))).replace("seed: 1\n", "seed:  1\n"))
    snapshot = checkpoints.load_newest(stopped.folder / "checkpoints")
    assert snapshot is not None
    state = snapshot.state | {"config": hash_of(file.read_text())}
    checkpoints.save(stopped.folder / "checkpoints", replace(snapshot, state=state))
    resume(stopped.folder, tasks=stopped.toys)
    assert everything(stopped.folder) | {"run.yaml": b""} == expected | {"run.yaml": b""}


def test_a_checkpoint_of_another_configuration_is_refused(stopped: Stopped) -> None:
    file = stopped.folder / "run.yaml"
    before = file.read_text()
    file.write_text(before.replace("seed: 1", "seed: 2"))
    journal = (stopped.folder / "journal.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"another configuration.*run\.yaml"):
        resume(stopped.folder, tasks=stopped.toys)
    assert (stopped.folder / "journal.jsonl").read_bytes() == journal
    assert not (stopped.folder / "scores.json").exists()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda run: (run / "journal.jsonl").unlink(), "expected a journal.jsonl"),
        (lambda run: (run / "journal.jsonl").write_text(""), "expected at least .* bytes"),
        (
            lambda run: (run / "checkpoints/step-4/model.safetensors").write_bytes(b"no"),
            "step-4: expected a whole checkpoint",
        ),
        (
            lambda run: (run / "checkpoints/step-4/state.json").write_text("{"),
            "step-4: expected a whole checkpoint",
        ),
        (lambda run: (run / "run.yaml").unlink(), "expected a run folder, found no run.yaml"),
    ],
    ids=["no journal", "empty journal", "spoilt weights", "spoilt state", "no configuration"],
)
def test_a_spoilt_run_folder_is_one_sentence(
    spoil: Callable[[Path], Any], sentence: str, stopped: Stopped
) -> None:
    spoil(stopped.folder)
    with pytest.raises(UserError, match=sentence):
        resume(stopped.folder, tasks=stopped.toys)


def test_nobody_else_runs_in_the_folder_meanwhile(toys: Toys, toy: Toy, tmp_path: Path) -> None:
    sentences: list[str] = []

    class Intruder(Watcher):
        def advanced(self, record: UnitRecord) -> None:
            if record.step in (2, 9):
                with pytest.raises(UserError) as caught:
                    resume(tmp_path / "run", tasks=toys)
                sentences.append(str(caught.value))

    run(toy(), tmp_path / "run", tasks=toys, watchers=[Intruder()])
    assert sentences == [f"{tmp_path / 'run'}: another process is running in this folder"] * 2


def test_a_folder_with_a_run_in_it_is_left_as_it_is(
    toys: Toys, toy: Toy, everything: Everything, tmp_path: Path
) -> None:
    run(toy(), tmp_path / "run", tasks=toys)
    before = everything(tmp_path / "run")
    folder, budget = tmp_path / "run", config_of(tmp_path / "run").budget
    longer = {"steps": budget.steps + 5, "batch": budget.batch}
    for config, sentence in (
        (toy(), f"this run is finished already, see `taskmix report {folder}`; train it for more"),
        (toy(seed=2), "another configuration here: seed was 1, now 2; choose another folder with"),
        (toy(budget=longer), f"in Python with taskmix.resume(folder, steps={budget.steps + 5})"),
    ):
        for resume_it in (False, True) if config != toy() else (False,):
            with pytest.raises(UserError, match=re.escape(sentence)):
                run(config, folder, tasks=toys, resume=resume_it)
    assert everything(folder) == before
    (folder / "scores.json").unlink()
    with pytest.raises(UserError, match=r"has begun already; continue it with .* resume=True"):
        run(toy(), folder, tasks=toys)


def test_a_run_that_began_while_the_data_were_read_is_left_as_it_is(
    toys: Toys, toy: Toy, interrupter: type[Any], tmp_path: Path
) -> None:
    config = toy(seed=3, budget={"steps": 2, "batch": 4})
    folder = tmp_path / "run"

    class Meanwhile(interrupter):  # type: ignore[misc, valid-type]
        def reading(self, task: str, split: str, rows: int) -> None:
            if not folder.exists():
                run(toy(seed=2, budget={"steps": 2, "batch": 4}), folder, tasks=toys)

    with pytest.raises(UserError, match="a run of another configuration here"):
        run(config, folder, tasks=toys, cache=tmp_path / "cache", watchers=[Meanwhile()])
    assert config_of(folder).seed == 2


def test_the_run_file_of_a_folder_makes_the_same_run_again(
    toys: Toys, toy: Toy, everything: Everything, tmp_path: Path
) -> None:
    config = toy(policy={"name": "active", "every": 3, "passes": 2, "limit": None})
    run(config, tmp_path / "one", tasks=toys)
    again = config_of(tmp_path / "one")
    assert asked_for(again) == config
    run(again, tmp_path / "two", tasks=toys)
    assert everything(tmp_path / "two") == everything(tmp_path / "one")


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(
    toys: Toys, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(toys["a"].kind)
    loss, calls = kind.loss, [0]

    def spoilt(self: Any, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        calls[0] += logits.requires_grad
        return loss(self, logits, batch) * (float("nan") if calls[0] == 7 else 1)

    monkeypatch.setattr(kind, "loss", spoilt)
    with pytest.raises(
        RunInterruptedError, match=r"task [abc], step 7: the loss is nan.*step 4 is whole"
    ) as caught:
        run(toy(), tmp_path / "run", tasks=toys)
    assert caught.value.exit_code == 1
    steps = [r.step for r in read(tmp_path / "run" / "journal.jsonl") if isinstance(r, Step)]
    assert steps == [1, 2, 3, 4, 5, 6]
    monkeypatch.undo()
    resume(tmp_path / "run", tasks=toys)


def test_a_run_that_stops_before_its_first_checkpoint_says_so(
    toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    config = toy(optimizer={"lr": 1e30, "clip": 0}, evaluate={"every": 8})
    with pytest.raises(RunInterruptedError, match=r"no checkpoint was written yet$") as caught:
        run(config, tmp_path / "run", tasks=toys)
    assert "is whole" not in str(caught.value)


def test_a_gradient_that_is_no_number_never_reaches_the_weights(
    toys: Toys, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(toys["a"].kind)
    loss = kind.loss
    calls = [0]

    class Spoil(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * float("inf")

    def spoilt(self: Any, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        calls[0] += logits.requires_grad
        return loss(self, Spoil.apply(logits) if calls[0] == 6 else logits, batch)

    monkeypatch.setattr(kind, "loss", spoilt)
    config = toy(checkpoint={"every": 1}, optimizer={"lr": 1e-3, "clip": 0})
    with pytest.raises(TaskmixError, match=r"task [abc], step 6: the norm of the gradient is"):
        run(config, tmp_path / "run", tasks=toys)
    weights = checkpoints.load(tmp_path / "run/checkpoints/step-5").model
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())


def test_a_dev_loss_that_is_no_number_stops_the_run(
    toys: Toys, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(toys["a"].kind)
    loss = kind.loss

    def spoilt(self: Any, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        return loss(self, logits, batch) * (1 if logits.requires_grad else float("inf"))

    monkeypatch.setattr(kind, "loss", spoilt)
    with pytest.raises(RunInterruptedError, match="task a, step 4: the dev loss is inf"):
        run(toy(), tmp_path / "run", tasks=toys)
    assert not (tmp_path / "run" / "scores.json").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"encoder": "small"}}, "'small' reads texts, but the tasks are images"),
        ({"device": "abacus"}, "device: expected auto or a device here, found 'abacus'"),
        ({"tasks": ["a", "b", "a"]}, "tasks: expected different names, found 'a' twice"),
        ({"tasks": ["a", "nothing"]}, "unknown task 'nothing'"),
        ({"policy": {"name": "thompson", "primary": "d"}}, "primary: expected one of"),
        ({"policy": {"name": "exp3s", "eta": -1}}, "eta"),
        ({"policy": {"name": "cycle"}}, "policy cycle: .*ratio"),
    ],
    ids=["encoder", "device", "twice", "task", "primary", "eta", "ratio"],
)
def test_what_cannot_be_run_leaves_no_folder(
    changes: dict[str, Any], sentence: str, toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        run(toy(**changes), tmp_path / "run", tasks=toys)
    assert not (tmp_path / "run").exists()


def test_a_file_in_place_of_the_folder_is_one_sentence(
    toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError, match="expected a folder to write to"):
        run(toy(), tmp_path / "run", tasks=toys)
