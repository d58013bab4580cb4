"""The loop."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bursar import rng as streams_of
from bursar.config import RunConfig
from bursar.errors import RunInterruptedError
from bursar.journal import Evaluation, Inner, Journal
from bursar.models.multitask import MultiTaskModel
from bursar.policies import DevScore, Draw, Gain, Outcome, Policy, Uncertainty
from bursar.rng import seed_for
from bursar.tasks.batches import Batch, Stream
from bursar.training.evaluation import Scores, evaluate, mean, tensors
from bursar.training.optimizer import build_optimizer, set_rate, trained
from bursar.training.prepare import Prepared


class Watcher(Protocol):
    """Somebody who wants to see a run go on: a progress bar, a log, a test."""

    def stepped(self, step: int, task: str, loss: float, tokens: int) -> None:
        """A step was done."""

    def evaluated(self, step: int, scores: Mapping[str, Scores], score: float, best: bool) -> None:
        """The run was scored."""


@dataclass
class Spent:
    """What a run has cost so far, in examples that passed through the model."""

    forward: int = 0
    backward: int = 0


class Trainer:
    """Spends a budget of steps as a policy says.

    It decides nothing: the policy says which task is next, the trainer draws the batch, takes the
    step, measures the signals that are due, and tells.

    Args:
        config: the run's configuration.
        prepared: the tasks, in the order of the policy's.
        model: what learns.
        policy: who decides.
        journal: where it is written down.
        watchers: who looks on.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: Sequence[Prepared],
        model: MultiTaskModel,
        policy: Policy,
        journal: Journal,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self.config = config
        self.device = pick_device(config.device)
        self.model = model.to(self.device)
        self.policy = policy
        self.journal = journal
        self.watchers = watchers
        self.tasks = {entry.task.name: entry.task for entry in prepared}
        self.dev = {entry.task.name: entry.dev for entry in prepared}
        self.streams = {
            entry.task.name: Stream(entry.task.name, entry.train, config.budget.batch, config.seed)
            for entry in prepared
        }
        self.optimizer = build_optimizer(self.model, config.optimizer)
        self.rng = streams_of.stream(config.seed, "draws")
        self.spent = Spent()
        self.step = 0
        self._autocast = wants_bfloat16(config.precision, self.device)

    def advance(self) -> None:
        """One step of the budget: draw, batch, step, outcome."""
        began = time.perf_counter()
        step = self.step + 1
        draw = self.policy.ask(self.rng)
        batch = self.streams[draw.task].next()
        loss = self.update(step, batch)
        outcome = self.measure(step, draw, batch, loss)
        self.policy.tell(outcome)
        self.step = step
        tokens = batch.tokens
        self.journal.draw(
            step,
            outcome,
            examples=len(batch.items),
            tokens=tokens,
            seconds=round(time.perf_counter() - began, 4),
        )
        for watcher in self.watchers:
            watcher.stepped(step, draw.task, loss, tokens)

    def update(self, step: int, batch: Batch) -> float:
        """One optimiser step on a batch; returns its loss before the step."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        torch.manual_seed(seed_for(self.config.seed, "dropout", step))
        loss = 0.0
        for share, inputs in self._parts(batch):
            part = self.loss(batch.task, inputs) * share
            part.backward()
            loss += float(part.detach())
        self.spent.forward += len(batch.items)
        self.spent.backward += len(batch.items)
        if not math.isfinite(loss):
            raise RunInterruptedError(
                f"task {batch.task}, step {step}: the loss is {loss}, which is no number to go on "
                "from; the last checkpoint is whole. Lower optimizer.lr or look at the task's data, "
                "then resume or start again."
            )
        set_rate(self.optimizer, self.config.optimizer, step, self.config.budget.steps)
        if self.config.optimizer.clip:
            torch.nn.utils.clip_grad_norm_(trained(self.optimizer), self.config.optimizer.clip)
        self.optimizer.step()
        return loss

    def loss(self, task: str, inputs: Mapping[str, Tensor]) -> Tensor:
        """The mean negative log-likelihood of a batch."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._autocast):
            logits = self.model(task, inputs)
        return self.tasks[task].kind.loss(logits, inputs)

    def _parts(self, batch: Batch) -> list[tuple[float, dict[str, Tensor]]]:
        """The batch in `accumulate` parts, each with its share of the examples."""
        parts = min(self.config.budget.accumulate, len(batch.items))
        if parts == 1:
            return [(1.0, tensors(batch, self.device))]
        split = self.streams[batch.task].split
        pieces = [
            Batch(batch.task, items, split.batch(items))
            for items in np.array_split(batch.items, parts)
        ]
        return [
            (len(piece.items) / len(batch.items), tensors(piece, self.device)) for piece in pieces
        ]

    def measure(self, step: int, draw: Draw, batch: Batch, loss: float) -> Outcome:
        """The outcome of a draw, with the signals that the policy wants for it and no others."""
        gain = score = uncertainty = None
        for signal in self.policy.due():
            if isinstance(signal, Gain):
                gain = loss - self._loss_again(step, batch)
            elif isinstance(signal, DevScore):
                score = self._score(signal)
            elif isinstance(signal, Uncertainty):
                uncertainty = self._uncertainty(step, signal)
        return Outcome(draw, loss=loss, gain=gain, score=score, uncertainty=uncertainty)

    @torch.no_grad()
    def _loss_again(self, step: int, batch: Batch) -> float:
        """The loss on the same batch under the same dropout masks."""
        torch.manual_seed(seed_for(self.config.seed, "dropout", step))
        parts = self._parts(batch)
        self.spent.forward += len(batch.items)
        return sum(float(self.loss(batch.task, inputs)) * share for share, inputs in parts)

    def _score(self, signal: DevScore) -> float:
        split = self.dev[signal.task].at_most(signal.examples)
        self.spent.forward += len(split)
        scores = evaluate(
            self.model, self.tasks[signal.task], split, self.config.evaluate.batch, self.device
        )
        return scores.score

    def _uncertainty(self, step: int, signal: Uncertainty) -> dict[str, float]:
        raise NotImplementedError

    def evaluate(self) -> tuple[dict[str, Scores], float]:
        """Score every task on its dev split, and write it down."""
        began = time.perf_counter()
        size = self.config.evaluate.batch
        scores = {
            name: evaluate(self.model, task, self.dev[name], size, self.device)
            for name, task in self.tasks.items()
        }
        score = mean({name: value.score for name, value in scores.items()})
        if inner := self.policy.inner():
            self.journal.append(Inner(self.step, inner))
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

    def state_dict(self) -> dict[str, Any]:
        """Everything but tensors that the next step depends on."""
        return {
            "policy": self.policy.state_dict(),
            "draws": streams_of.state_of(self.rng),
            "streams": {name: stream.state_dict() for name, stream in self.streams.items()},
            "spent": {"forward": self.spent.forward, "backward": self.spent.backward},
        }

    def load_state_dict(self, step: int, state: Mapping[str, Any]) -> None:
        """Stand where `state_dict` was taken, after `step` steps."""
        self.step = step
        self.policy.load_state_dict(state["policy"])
        self.rng = streams_of.restore(state["draws"])
        for name, stream in self.streams.items():
            stream.load_state_dict(state["streams"][name])
        self.spent = Spent(**state["spent"])


def pick_device(name: str) -> torch.device:
    """The device that a run file names; `auto` is the fastest there is."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def wants_bfloat16(precision: str, device: torch.device) -> bool:
    """Mixed precision: where asked for, and by default where the device has it."""
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return precision == "bfloat16"
