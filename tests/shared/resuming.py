"""The tests that every host has to pass: a resumed training equals one that was not stopped."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import nn

import processes
import taskmix
from taskmix.config import RunConfig
from taskmix.mixing import Decisions
from taskmix.policies import POLICIES, Policy

STEPS, STOPPED = 5, 4
EXP3S = partial(taskmix.Exp3S, eta=0.1)


@dataclass(frozen=True)
class Case:
    """One training of a host.

    Args:
        folder: of its files.
        workers: of the loader.
        accumulate: micro-batches of a step.
        decide: whether a draw is for a step or for a micro-batch.
        stop: the last step; it saves after step 3, and has 5 in all.
        kill: whether it ends there by SIGKILL.
        resume: whether it goes on from what was saved.
        policy: made of the names of the tasks.
    """

    folder: Path
    workers: int
    accumulate: int
    decide: Literal["step", "batch"] = "step"
    stop: int = STEPS
    kill: bool = False
    resume: bool = False
    policy: Callable[[list[str]], Policy] = EXP3S

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def checkpoint(self) -> str | None:
        """What a Trainer resumes from."""
        return str(self.folder / "checkpoint-3") if self.resume else None

    def ends(self, step: int) -> bool:
        """Return whether the training is to end behind a step, or kill it there."""
        if step == self.stop and self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return step == self.stop


class Trained(NamedTuple):
    decisions: Decisions
    model: nn.Module
    metrics: Any = None  # those that the host logged


Train = Callable[[Case], Trained]


def check(
    train: Train,
    folder: Path,
    workers: int,
    accumulate: int,
    decide: Literal["step", "batch"] = "step",
    **options: Any,
) -> None:
    """Assert that draws, losses, weights, metrics and journal do not show that it was stopped."""
    whole = train(
        replace(Case(folder / "whole", workers, accumulate, decide, **options), kill=False)
    )
    stopped = Case(folder / "parts", workers, accumulate, decide, STOPPED, **options)
    if stopped.kill:
        child = multiprocessing.get_context("fork").Process(target=train, args=(stopped,))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    else:
        train(stopped)
    parts = train(replace(stopped, stop=STEPS, kill=False, resume=True))
    assert parts.decisions.policy.state_dict() == whole.decisions.policy.state_dict()
    assert parts.metrics == whole.metrics
    pairs = zip(whole.model.named_parameters(), parts.model.parameters(), strict=True)
    for (name, ours), theirs in pairs:
        assert torch.equal(ours, theirs), name
    if dist.is_initialized():
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, whole.decisions.policy.state_dict())
        assert all(state == states[0] for state in states)
        dist.barrier()
        if dist.get_rank():
            return
    lines = (folder / "whole" / "journal.jsonl").read_bytes()
    assert lines == (folder / "parts" / "journal.jsonl").read_bytes()
    assert lines.count(b'"kind":"step"') >= STEPS
    measured = b'"gain":' if taskmix.Gain() in whole.decisions.policy.needs else b'"loss":'
    assert lines.count(b'"loss":') == lines.count(measured) == lines.count(b'"kind":"step"')


def _forget_the_parent() -> None:
    """Accelerate remembers for a whole process that it was alone."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()
    GradientState._reset_state()


def on_ranks(work: Callable[[], None], exitcode: int = 0) -> None:
    """Do it in two processes that train together, and raise what any of them raised."""

    def joined() -> None:
        _forget_the_parent()
        dist.init_process_group("gloo")
        work()
        dist.destroy_process_group()

    processes.on_ranks(joined, exitcode=exitcode)


def stop_after(case: Case) -> Any:
    """Return a callback of a Trainer of transformers that ends its training as a case says."""
    import transformers

    class Stop(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = case.ends(state.global_step)

    return Stop()


def logged(trainer: Any) -> list[dict[str, float]]:
    """Return the logs of a Trainer, but for its own loss and epoch, which a resume changes."""
    return [
        {name: value for name, value in entry.items() if name not in ("loss", "epoch")}
        for entry in trainer.state.log_history
        if "train_runtime" not in entry
    ]


def default_policy(tasks: list[str]) -> Policy:
    """Return the policy of a run file without one."""
    name = RunConfig.model_validate({"tasks": tasks}).decider["name"]
    [policy] = [policy for policy in POLICIES if policy.name == name]
    return policy(tasks)


class TestResuming:
    """Tests of the training that a module's fixture `host` makes; import it there."""

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("accumulate", [1, 4])
    @pytest.mark.parametrize("decide", ["step", "batch"])
    def test_a_training_that_was_killed_and_resumed_equals_one_that_was_not(
        self,
        host: Train,
        tmp_path: Path,
        workers: int,
        accumulate: int,
        decide: Literal["step", "batch"],
    ) -> None:
        check(host, tmp_path, workers, accumulate, decide, kill=True)

    def test_the_default_policy_trains_as_in_a_run_and_resumes(
        self, host: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        check(host, tmp_path, 0, 2, policy=default_policy)
        assert not [record for record in caplog.records if "taskmix" in record.name]

    def test_so_it_does_by_two_ranks(self, host: Train, tmp_path: Path) -> None:
        def work() -> None:
            check(host, tmp_path / "one", 0, 1)
            check(host, tmp_path / "several", 2, 2)

        on_ranks(work)
