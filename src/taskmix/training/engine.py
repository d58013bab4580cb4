"""The engine: executes the requests of drivers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.optim import Optimizer

from taskmix.config import RunConfig
from taskmix.errors import DivergedError, UserError
from taskmix.rng import seed_for
from taskmix.schedule import rate_factor
from taskmix.tasks.batches import Batch, TaskItems
from taskmix.tasks.parts import Split
from taskmix.training.budget import Spent, place_of
from taskmix.training.evaluation import evaluate
from taskmix.training.folder import Scores
from taskmix.training.frozen_states import FrozenStates
from taskmix.training.loading import Loader, pick_device, wants_bfloat16
from taskmix.training.optimizer import build_optimizer, set_rate, trained
from taskmix.training.prepare import Prepared
from taskmix.training.ranks import ALONE, Ranks, running_statistics
from taskmix.training.watching import Watchers
from taskmix.uncertainty.information import SUM_TOLERANCE


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """Measurements of an optimiser step, still on the device: reading them makes the host wait."""

    tasks: Sequence[str]
    losses: Tensor  # the mean loss of each task before the step, shape `(tasks,)`
    norm: Tensor  # of the gradient before clipping


class Engine:
    """Trains and evaluates a model: any module that maps a `Batch` to outputs by task."""

    def __init__(
        self,
        config: RunConfig,
        prepared: Sequence[Prepared],
        model: nn.Module,
        watchers: Watchers | None = None,
        cache: Path | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.config = config
        self.ranks = ranks
        self.device = pick_device(config.device)
        self.model = ranks.prepared(model, self.device)
        self.optimizer = self.new_optimizer()
        self.parameters = list(trained(self.optimizer))
        self.watchers = watchers or Watchers()
        self.cache = cache
        self.tasks = {entry.task.name: entry.task for entry in prepared}
        self.train = {entry.task.name: entry.train for entry in prepared}
        self.dev = {entry.task.name: entry.dev for entry in prepared}
        self.loader = Loader(
            prepared, config.budget, config.seed, self.device, ranks.cut, even=ranks.shards
        )
        self.statistics = running_statistics(model)
        self.spent = Spent()
        self.autocast = wants_bfloat16(config.precision, self.device)
        self.on_outputs: Callable[[Batch, Mapping[str, Any]], None] | None = None

    def new_optimizer(self) -> Optimizer:
        return build_optimizer(self.model, self.config.optimizer)

    def frozen_states(self) -> FrozenStates:
        """Return the cache of the frozen layers' outputs; their weights must be loaded."""
        return FrozenStates(
            self.model,
            batch=self.config.evaluate.batch,
            device=self.device,
            cache=self.cache,
            working=self.watchers.working,
            ranks=self.ranks,
        )

    def step(self, number: int, batch: Batch, weights: Mapping[str, float]) -> StepResult:
        """Train on a batch with the dropout and the learning rate of a step of the budget."""
        # The place in the budget is that before the step has cost anything.
        place = place_of(self.config, number, self.spent)
        rate = rate_factor(*place, self.config.optimizer.warmup)
        self.seed("dropout", number)
        return self.update(self.optimizer, [batch], weights, rate)

    def update(
        self,
        optimizer: Optimizer,
        batches: Sequence[Batch],
        weights: Mapping[str, float],
        rate: float = 1.0,
    ) -> StepResult:
        """Take one optimiser step on the weighted sum of the tasks' losses."""
        self.model.train()
        optimizer.zero_grad(set_to_none=True)
        losses = self.mean_losses(batches, weights)
        # Gradients are clipped after the sum over ranks: the step is that of a single process.
        self.ranks.add_gradients(self.parameters)
        self.ranks.send(self.statistics)
        set_rate(optimizer, rate)
        norm = self.ranks.clip(self.parameters, self.config.optimizer.clip or math.inf)
        optimizer.step()
        return StepResult(_tasks_of(batches), losses, norm)

    def mean_losses(
        self, batches: Sequence[Batch], weights: Mapping[str, float] | None = None
    ) -> Tensor:
        """Return each task's mean loss, shape `(tasks,)`; with weights, accumulate gradients."""
        self.spent.add(sum(batch.examples for batch in batches), backward=weights is not None)
        total = {task: torch.zeros((), device=self.device) for task in _tasks_of(batches)}
        all_pieces = [piece for batch in batches for piece in batch.pieces or (batch,)]
        pieces = self.with_shares(all_pieces, list(total))
        # The pieces of one batch save memory; batches of several tasks share one backward pass.
        for group in [pieces] if len(batches) > 1 else [[piece] for piece in pieces]:
            scaled = []
            for piece in group:
                losses = self.losses(piece)
                for part in piece:
                    loss = losses[part.task]
                    total[part.task] = total[part.task] + loss.detach() * part.share
                    if weights is not None:
                        scaled.append(loss * (weights[part.task] * part.share))
            if scaled:
                (scaled[0] if len(scaled) == 1 else torch.stack(scaled).sum()).backward()
        return self.ranks.total(torch.stack(list(total.values())))

    def read(self, where: str, result: StepResult, *more: Tensor) -> list[float]:
        """Return the losses and other measurements; raise if one is not finite."""
        # The only time in a step that the host waits for the device.
        numbers = torch.cat([result.losses, *(x.reshape(-1) for x in (*more, result.norm))])
        *values, norm = numbers.tolist()
        for task, loss in zip(result.tasks, values, strict=False):
            check_finite(loss, f"task {task}, {where}: the loss")
        for value in values[len(result.tasks) :]:
            check_finite(value, f"task {result.tasks[0]}, {where}: the loss afterwards")
        check_finite(norm, f"task {', '.join(result.tasks)}, {where}: the norm of the gradient")
        return values

    def outputs(self, batch: Batch) -> Mapping[str, Any]:
        """Return the model's outputs by task, in the run's precision."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outputs: Mapping[str, Any] = self.model(batch)
        return outputs

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return each task's mean loss over this rank's part of a batch."""
        outputs = self.outputs(batch)
        if self.on_outputs is not None:
            self.on_outputs(batch, outputs)
        return {
            part.task: self.tasks[part.task].kind.loss(outputs[part.task], part.columns)
            for part in batch
        }

    def with_shares(self, pieces: Sequence[Batch], tasks: Sequence[str]) -> Sequence[Batch]:
        """Return pieces with their shares in the mean loss of each task of the batch."""
        # Pieces come with shares by items. A loss that is a mean over decisions, such as one tag a
        # word, needs shares by decisions: a piece with more words counts more.
        by_decisions = [t for t in tasks if self.tasks[t].kind.mean_over == "decisions"]
        if not by_decisions or (len(pieces) == 1 and self.ranks.count == 1):
            return pieces
        counts = [
            {part.task: self._decisions(part) for part in piece if part.task in by_decisions}
            for piece in pieces
        ]
        of_rank = torch.tensor([sum(n.get(task, 0) for n in counts) for task in by_decisions])
        total = dict(zip(by_decisions, self.ranks.total(of_rank).tolist(), strict=True))
        return [
            piece.with_shares({task: n / max(1, total[task]) for task, n in count.items()})
            for piece, count in zip(pieces, counts, strict=True)
        ]

    def _decisions(self, part: TaskItems) -> int:
        return (
            self.tasks[part.task].kind.counted(part.columns, len(part.items)) if part.share else 0
        )

    def seed(self, *name: str | int) -> None:
        """Seed torch by the run's seed, a name and the rank: dropout must differ between ranks."""
        torch.manual_seed(seed_for(self.config.seed, *name, *self.ranks.name))

    def score(self, task: str, split: Split | None = None) -> Scores:
        """Evaluate a task on a split, its dev split by default, at the cost of the budget."""
        split = self.dev[task] if split is None else split
        self.spent.add(len(split))
        return self.evaluate(task, split)

    def evaluate(self, task: str, split: Split) -> Scores:
        """Evaluate a task on a split without counting the cost."""
        size, known = self.config.evaluate.batch, self.tasks[task]
        return evaluate(self.model, known, split, size, self.device, self.ranks, self.autocast)

    def distribution(self, batch: Batch) -> Tensor:
        """Return the predictive distribution of a batch of one task, which a user may compute."""
        [part] = batch
        kind = self.tasks[part.task].kind
        predicted = kind.distribution(self.outputs(batch)[part.task], part.columns)
        decisions = len(kind.owners(part.columns))
        what = f"task {part.task}: the predictive distribution"
        if not isinstance(predicted, Tensor) or predicted.ndim != 2 or len(predicted) != decisions:
            found = tuple(getattr(predicted, "shape", ())) or type(predicted).__name__
            raise UserError(f"{what}: expected the shape ({decisions}, classes), found {found}")
        check_finite(float(predicted.sum()), what)
        wrong = (predicted < 0).any(-1) | ((predicted.sum(-1) - 1).abs() > SUM_TOLERANCE)
        if predicted.shape[-1] > 1 and bool(wrong.any()):
            raise UserError(f"{what}: expected probabilities, none below 0, that sum to 1")
        return predicted

    def state_dict(self) -> dict[str, Any]:
        return {"streams": self.loader.state_dict(), "spent": asdict(self.spent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; a task that it lacks starts anew."""
        self.loader.load_state_dict(state["streams"])
        self.spent = TypeAdapter(Spent).validate_python(state["spent"])


def _tasks_of(batches: Sequence[Batch]) -> list[str]:
    return [task for batch in batches for task in batch.tasks]


def check_finite(value: float, what: str) -> None:
    if not math.isfinite(value):
        raise DivergedError(
            f"{what} is {value}, no number to go on from; look at the task's data or lower "
            "optimizer.lr, then start again"
        )
