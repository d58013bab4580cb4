"""The tests that every host has to pass: a resumed training equals one that was not stopped."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import processes
from taskmix.mixing import Decisions

STEPS, STOPPED = 5, 4


@dataclass(frozen=True)
class Case:
    """One training of a host.

    Args:
        folder: of its files.
        workers: of the loader.
        accumulate: micro-batches of a step.
        stop: the last step; it saves after step 3, and has 5 in all.
        resume: whether it goes on from what was saved.
    """

    folder: Path
    workers: int
    accumulate: int
    stop: int = STEPS
    resume: bool = False

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def checkpoint(self) -> str | None:
        """What a Trainer resumes from."""
        return str(self.folder / "checkpoint-3") if self.resume else None


Train = Callable[[Case], tuple[Decisions, nn.Module]]


def check(train: Train, folder: Path, workers: int, accumulate: int) -> None:
    """Assert that draws, losses, journal and weights do not show that a training was stopped."""
    whole, model = train(Case(folder / "whole", workers, accumulate))
    stopped = Case(folder / "parts", workers, accumulate, STOPPED)
    train(stopped)
    parts, other = train(replace(stopped, stop=STEPS, resume=True))
    assert parts.policy.state_dict() == whole.policy.state_dict()
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    if dist.is_initialized():
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, whole.policy.state_dict())
        assert all(state == states[0] for state in states)
        dist.barrier()
        if dist.get_rank():
            return
    lines = (folder / "whole" / "journal.jsonl").read_bytes()
    assert lines == (folder / "parts" / "journal.jsonl").read_bytes()
    assert lines.count(b'"kind":"step"') >= STEPS
    assert lines.count(b'"loss"') == lines.count(b'"gain"') == lines.count(b'"kind":"step"')


def _forget_the_parent() -> None:
    """Accelerate remembers for a whole process that it was alone."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()
    GradientState._reset_state()


def on_ranks(work: Callable[[], None]) -> None:
    """Do it in two processes that train together, and raise what any of them raised."""

    def joined() -> None:
        _forget_the_parent()
        dist.init_process_group("gloo")
        work()
        dist.destroy_process_group()

    processes.on_ranks(joined)


def stop_after(step: int) -> Any:
    """Return a callback of a Trainer of transformers that ends its training behind a step."""
    import transformers

    class Stop(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step == step

    return Stop()


class TestResuming:
    """Tests of the training that a module's fixture `host` makes; import it there."""

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("accumulate", [1, 2])
    def test_a_resumed_training_equals_one_that_was_not_stopped(
        self, host: Train, tmp_path: Path, workers: int, accumulate: int
    ) -> None:
        check(host, tmp_path, workers, accumulate)

    def test_so_it_does_by_two_ranks(self, host: Train, tmp_path: Path) -> None:
        def work() -> None:
            for workers in (0, 2):
                for accumulate in (1, 2):
                    check(host, tmp_path / f"{workers}-{accumulate}", workers, accumulate)

        on_ranks(work)
