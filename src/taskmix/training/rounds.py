"""Rounds: the executor of a weighting, on any model whose data a feed knows how to serve."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from taskmix.errors import RunInterruptedError
from taskmix.rng import seed_for
from taskmix.training.ranks import ALONE, Ranks, running_statistics
from taskmix.weighting.base import (
    DevLoss,
    DevSlope,
    JointResult,
    Mix,
    Report,
    Separate,
    Separated,
    Slope,
    Together,
    Weighting,
    play,
)
from taskmix.weighting.deltas import Deltas
from taskmix.weighting.record import Round


@dataclass(frozen=True, slots=True)
class Work:
    """A batch and how to get its losses from the model as it stands.

    Args:
        examples: how many examples.
        losses: the mean loss of each task that is in the batch, by the task's index; of several
            ranks, each one's part of it, so that their sum is the mean.
    """

    examples: int
    losses: Callable[[], Mapping[int, Tensor]]


@dataclass(frozen=True, slots=True)
class DevResult:
    """A task's score and mean loss on a dev set."""

    score: float
    loss: float


class Feed(Protocol):
    """Serves a model its training and dev data; tasks are numbered in the weighting's order."""

    def train(self, tasks: Sequence[int], fraction: float, number: int) -> Iterator[Work]:
        """A share of these tasks' training data in the order of the round with this number."""

    def dev(self, batch: int | None, turn: int) -> Iterator[Work]:
        """Return the target's dev data for tuning: all of it, or the batch whose turn it is."""

    def dev_size(self) -> int:
        """Return how many dev examples of the target there are for tuning."""

    def judge(self, task: int, tuning: bool) -> DevResult:
        """Return a task's score on its dev data for tuning, or on those for selecting the model."""


@dataclass
class _Candidate:
    """What a round may end with: tensors of the model and of the optimiser."""

    model: dict[str, Tensor]
    optimizer: dict[str, Any]


class Rounds:
    """Trains a model round by round as a weighting says.

    It decides nothing: it trains tasks alone or jointly, mixes deltas, and measures the target's
    dev loss, each when asked. Data order and dropout depend on the seed, the round and the task
    alone, so that a second try sees the same batches and a resumed run goes on bit for bit.

    Args:
        weighting: who decides.
        model: what learns.
        feed: its data.
        optimizer: makes a new optimiser of the model's parameters.
        seed: of dropout.
        clip: longest gradient; not clipped if None.
        working: is told what is being done.
        ranks: those that train together.
    """

    def __init__(
        self,
        weighting: Weighting,
        model: nn.Module,
        feed: Feed,
        optimizer: Callable[[], Optimizer],
        *,
        seed: int,
        clip: float | None = None,
        working: Callable[[str], None] = lambda text: None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.weighting = weighting
        self.model = model
        self.feed = feed
        self.number = 0
        self._new_optimizer = optimizer
        self._seed = seed
        self._clip = clip
        self._working = working
        self._ranks = ranks
        self._statistics = running_statistics(model)
        self._target = weighting.tasks.index(weighting.target)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._deltas = Deltas(model, len(weighting.tasks), self._target)
        self._optimizers: dict[str, dict[str, Any]] = {}
        self._candidate: dict[str, Any] = {}
        self._chosen: _Candidate | None = None

    def advance(self) -> Report:
        """Play one round."""
        self._chosen = None
        self._deltas.rebase()
        report = play(self.weighting, self)
        self._settle()
        self.number += 1
        return report

    def _settle(self) -> None:
        """Take up the candidate that was kept, if any was."""
        if self._chosen is not None:
            self.model.load_state_dict(self._chosen.model)
            self._optimizers["joint"] = self._chosen.optimizer

    def scores(self) -> dict[str, float]:
        """Return each task's dev score, on the data for selecting the model."""
        return {
            name: self.feed.judge(task, tuning=False).score
            for task, name in enumerate(self.weighting.tasks)
        }

    def separate(self, request: Separate) -> Separated:
        """Train each task alone from the base, keep its delta, come back to the base."""
        losses, norms, scores = [], [], []
        for task, scale in enumerate(request.scales):
            slot = f"task {task}"
            optimizer = self._optimizer(slot, request.fresh)
            losses.append(self._train({task: scale}, request.fraction, optimizer)[task])
            if not request.fresh:
                self._optimizers[slot] = copy.deepcopy(optimizer.state_dict())
            norms.append(self._deltas.collect(task))
            if request.scored:
                scores.append(self.feed.judge(self._target, tuning=True).score)
            self._deltas.restore()
        return Separated(
            np.array(norms),
            np.array(losses),
            np.array(scores) if request.scored else None,
            self.feed.dev_size(),
        )

    def together(self, request: Together) -> JointResult:
        """Train jointly from the base, up to the candidate."""
        self._deltas.restore()
        optimizer = self._optimizer("joint", request.fresh)
        scales = {task: scale for task, scale in enumerate(request.weights) if scale > 0}
        means = self._train(scales, request.fraction, optimizer)
        self._candidate = optimizer.state_dict()
        judged = self.feed.judge(self._target, tuning=True)
        losses = [means.get(task, 0.0) for task in range(len(request.weights))]
        return JointResult(np.array(losses), judged.score, judged.loss)

    def slope(self, request: DevSlope) -> Slope:
        """Return the target's dev loss and its gradient at base + Σ cᵢ δᵢ: one backward pass."""
        self._deltas.mix(request.coefficients)
        self.model.eval()
        self.model.zero_grad(set_to_none=True)
        total = 0.0
        for part, work in self._dev(request.batch, request.turn):
            loss = work.losses()[self._target] * part
            loss.backward()
            total += float(loss.detach())
        self._ranks.add_gradients(self._trained)
        return Slope(self._sum(total), self._deltas.slope())

    @torch.no_grad()
    def loss(self, request: DevLoss) -> float:
        """Return the target's dev loss at base + Σ cᵢ δᵢ."""
        self._deltas.mix(request.coefficients)
        self.model.eval()
        works = self._dev(None, 0)
        return self._sum(sum(float(work.losses()[self._target]) * part for part, work in works))

    def mix(self, request: Mix) -> None:
        """Make base + Σ cᵢ δᵢ the base."""
        self._deltas.mix(request.coefficients)
        self._deltas.rebase()

    def keep(self) -> None:
        """Let the round end at the candidate, in place of any that was kept before."""
        self._chosen = copy.deepcopy(_Candidate(self.model.state_dict(), self._candidate))

    def _sum(self, number: float) -> float:
        """Return the sum of the ranks' numbers."""
        return float(self._ranks.total(torch.tensor(number, dtype=torch.float64)))

    def _dev(self, batch: int | None, turn: int) -> Iterator[tuple[float, Work]]:
        """Yield dev batches, each with its part of all examples that are used."""
        self._working(f"round {self.number + 1}: the dev loss of {self.weighting.target}")
        for work in self.feed.dev(batch, turn):
            whole = self.feed.dev_size() if batch is None else work.examples
            yield work.examples / whole, work

    def _optimizer(self, slot: str, fresh: bool) -> Optimizer:
        optimizer = self._new_optimizer()
        if not fresh and slot in self._optimizers:
            optimizer.load_state_dict(copy.deepcopy(self._optimizers[slot]))
        return optimizer

    def _train(
        self, scales: Mapping[int, float], fraction: float, optimizer: Optimizer
    ) -> dict[int, float]:
        """Return one pass over a share of the tasks' data; returns the mean loss of each."""
        self.model.train()
        names = [self.weighting.tasks[task] for task in scales]
        torch.manual_seed(seed_for(self._seed, "dropout", self.number, *names, *self._ranks.name))
        totals = dict.fromkeys(scales, 0.0)
        counts = dict.fromkeys(scales, 0)
        for batch, work in enumerate(self.feed.train(list(scales), fraction, self.number)):
            self._working(f"round {self.number + 1}: training {', '.join(names)}, batch {batch}")
            for task, loss in self._step(work, scales, optimizer).items():
                totals[task] += loss
                counts[task] += 1
        return {task: totals[task] / max(1, counts[task]) for task in scales}

    def _step(
        self, work: Work, scales: Mapping[int, float], optimizer: Optimizer
    ) -> dict[int, float]:
        optimizer.zero_grad(set_to_none=True)
        losses = work.losses()
        total = torch.stack([scales[task] * loss for task, loss in losses.items()]).sum()
        total.backward()
        measured = torch.stack([total, *losses.values()]).detach()
        whole, *means = self._ranks.total(measured).tolist()
        if not math.isfinite(whole):
            raise RunInterruptedError(
                f"round {self.number + 1}: the training loss is {whole}, which is "
                "no number to go on from; lower the learning rate and start again."
            )
        self._ranks.add_gradients(self._trained)
        self._ranks.send(self._statistics)
        if self._clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._clip)
        optimizer.step()
        return dict(zip(losses, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return all but the model's tensors and the optimisers', as JSON-able values."""
        return {"round": self.number, "weighting": self.weighting.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned; the model's tensors are loaded by their owner."""
        self.number = state["round"]
        self.weighting.load_state_dict(state["weighting"])

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Return the state of every kept optimiser as named tensors."""
        return {
            f"{slot}.{number}.{name}": value
            for slot, state in self._optimizers.items()
            for number, values in state["state"].items()
            for name, value in values.items()
            if isinstance(value, Tensor)
        }

    def load_optimizer_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """The counterpart of `optimizer_tensors`."""
        self._optimizers = {}
        for key, tensor in tensors.items():
            slot, number, name = key.split(".")
            if slot not in self._optimizers:
                groups = self._new_optimizer().state_dict()["param_groups"]
                self._optimizers[slot] = {"state": {}, "param_groups": groups}
            self._optimizers[slot]["state"].setdefault(int(number), {})[name] = tensor


def record(step: int, report: Report, seconds: float | None = None) -> Round:
    """Return a round as the journal keeps it."""
    return Round(
        step,
        report.norms,
        report.alphas,
        report.weights,
        report.dev_loss,
        report.losses,
        seconds,
    )
