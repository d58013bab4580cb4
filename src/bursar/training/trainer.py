"""What every way of training shares: batches, the step, evaluation, state."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bursar.config import RunConfig
from bursar.errors import RunInterruptedError, UserError
from bursar.journal import Diagnostics, Evaluation, Journal
from bursar.models.multitask import MultiTaskModel
from bursar.rng import seed_for
from bursar.tasks.batches import Batch, Stream
from bursar.training.evaluation import evaluate, mean, tensors
from bursar.training.folder import Scores
from bursar.training.optimizer import (
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rate,
    trained,
)
from bursar.training.prepare import Prepared


class Watcher(Protocol):
    """Somebody who wants to see a run go on: a progress bar, a log, a test."""

    def working(self, text: str) -> None:
        """What is being done within a long step."""

    def stepped(self, step: int, task: str, loss: float, tokens: int) -> None:
        """A step was done."""

    def evaluated(self, step: int, scores: Mapping[str, Scores], score: float, best: bool) -> None:
        """The run was scored."""


@dataclass
class Spent:
    """What a run has cost so far, in examples that passed through the model."""

    forward: int = 0
    backward: int = 0


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a trainer works with but the one who decides.

    Args:
        config: the run's configuration.
        prepared: the tasks, in the order of the one who decides.
        model: what learns.
        journal: where it is written down.
        watchers: who looks on.
        cache: the folder for what can be computed once and used again; the default one if None.
    """

    config: RunConfig
    prepared: Sequence[Prepared]
    model: MultiTaskModel
    journal: Journal
    watchers: Sequence[Watcher] = ()
    cache: Path | None = None


class Trainer(ABC):
    """Spends a budget of steps as somebody else decides.

    A subclass says in `advance` what one step of the budget is: `PolicyTrainer` asks a policy.

    Args:
        job: what it works with.
    """

    def __init__(self, job: Job) -> None:
        self.config = config = job.config
        self.device = pick_device(config.device)
        self.model = job.model.to(self.device)
        self.journal = job.journal
        self.watchers = job.watchers
        self.tasks = {entry.task.name: entry.task for entry in job.prepared}
        self.dev = {entry.task.name: entry.dev for entry in job.prepared}
        self.streams = {
            entry.task.name: Stream(entry.task.name, entry.train, config.budget.batch, config.seed)
            for entry in job.prepared
        }
        self.optimizer = build_optimizer(self.model, config.optimizer)
        self.spent = Spent()
        self.step = 0
        self._autocast = wants_bfloat16(config.precision, self.device)

    @abstractmethod
    def advance(self) -> None:
        """One step of the budget."""

    def diagnostics(self) -> dict[str, Any]:
        """What the one who decides believes, for the journal."""
        return {}

    def update(self, step: int, batches: Sequence[tuple[Batch, float]]) -> list[float]:
        """One optimiser step on the weighted sum of the batches' losses; returns each loss."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        self.seed_dropout(step)
        losses = [self._backward(step, batch, weight) for batch, weight in batches]
        set_rate(self.optimizer, self.config.optimizer, step, self.config.budget.steps)
        longest = self.config.optimizer.clip or math.inf
        length = torch.nn.utils.clip_grad_norm_(trained(self.optimizer), longest)
        names = ", ".join(batch.task for batch, _ in batches)
        finite(float(length), f"task {names}, step {step}: the length of the gradient")
        self.optimizer.step()
        return losses

    def seed_dropout(self, step: int) -> None:
        """Make dropout at a step depend on the run's seed and the step alone."""
        torch.manual_seed(seed_for(self.config.seed, "dropout", step))

    def _backward(self, step: int, batch: Batch, weight: float) -> float:
        """Adds a batch's gradient; returns its loss."""
        loss = 0.0
        for share, inputs in self.parts(batch):
            part = self.loss(batch.task, inputs)
            (part * (share * weight)).backward()
            loss += float(part.detach()) * share
        self.spent.forward += len(batch.items)
        self.spent.backward += len(batch.items)
        return finite(loss, f"task {batch.task}, step {step}: the loss")

    def loss(self, task: str, inputs: Mapping[str, Tensor]) -> Tensor:
        """The mean negative log-likelihood of a batch."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._autocast):
            logits = self.model(task, inputs)
        return self.tasks[task].kind.loss(logits, inputs)

    def parts(self, batch: Batch) -> list[tuple[float, dict[str, Tensor]]]:
        """The batch in `accumulate` parts on the device, each with its share of the examples."""
        count = min(self.config.budget.accumulate, len(batch.items))
        if count == 1:
            return [(1.0, tensors(batch, self.device))]
        split = self.streams[batch.task].split
        pieces = np.array_split(batch.items, count)
        return [
            (
                len(items) / len(batch.items),
                tensors(Batch(batch.task, items, split.batch(items)), self.device),
            )
            for items in pieces
        ]

    def evaluate(self) -> tuple[dict[str, Scores], float]:
        """Score every task on its dev split, and write it down."""
        began = time.perf_counter()
        size = self.config.evaluate.batch
        scores = {
            name: evaluate(self.model, task, self.dev[name], size, self.device)
            for name, task in self.tasks.items()
        }
        for name, value in scores.items():
            finite(value.loss, f"task {name}, step {self.step}: the dev loss")
        score = mean({name: value.score for name, value in scores.items()})
        if beliefs := self.diagnostics():
            self.journal.append(Diagnostics(self.step, beliefs))
        self.journal.append(
            Evaluation(
                self.step,
                "dev",
                score,
                {name: value.score for name, value in scores.items()},
                {name: value.loss for name, value in scores.items()},
                {name: value.metrics for name, value in scores.items()},
                self.spent.forward,
                self.spent.backward,
                round(time.perf_counter() - began, 4),
            )
        )
        return scores, score

    def selection_score(self, scores: Mapping[str, Scores], score: float) -> float:
        """By what the best model is told: the run's score."""
        return score

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state as named tensors."""
        return optimizer_tensors(self.optimizer, self.model)

    def load_optimizer_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The counterpart of `optimizer_tensors`."""
        load_optimizer_tensors(self.optimizer, self.model, tensors)

    def state_dict(self) -> dict[str, Any]:
        """Everything but tensors that the next step depends on."""
        return {
            "streams": {name: stream.state_dict() for name, stream in self.streams.items()},
            "spent": {"forward": self.spent.forward, "backward": self.spent.backward},
        }

    def load_state_dict(self, step: int, state: Mapping[str, Any]) -> None:
        """Stand where `state_dict` was taken, after `step` steps."""
        self.step = step
        for name, stream in self.streams.items():
            stream.load_state_dict(state["streams"][name])
        self.spent = Spent(**state["spent"])

    def adopt(self, step: int, state: Mapping[str, Any], model: Mapping[str, Tensor]) -> None:
        """Go on from a run with other tasks: what both have in common is taken over."""
        self.step = step
        own = self.model.state_dict()
        shared = {name: tensor for name, tensor in model.items() if name in own}
        self.model.load_state_dict(own | shared)
        for name, stream in self.streams.items():
            if name in state["streams"]:
                stream.load_state_dict(state["streams"][name])
        self.spent = Spent(**state["spent"])


def finite(value: float, what: str) -> float:
    """The value, if one can go on from it."""
    if not math.isfinite(value):
        raise RunInterruptedError(
            f"{what} is {value}, no number to go on from; the last checkpoint is whole. Look at "
            "the task's data or lower optimizer.lr, then start again."
        )
    return value


def pick_device(name: str) -> torch.device:
    """The device that a run file names; `auto` is the fastest there is."""
    if name != "auto":
        try:
            torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as error:
            why = str(error).splitlines()[0]
            raise UserError(
                f"device: expected auto or a device here, found {name!r}: {why}"
            ) from None
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def wants_bfloat16(precision: str, device: torch.device) -> bool:
    """Mixed precision: where asked for, and by default where the device has it."""
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return precision == "bfloat16"
