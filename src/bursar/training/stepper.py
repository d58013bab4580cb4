"""An optimiser that takes one step for each batch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bursar.tasks.batches import Batch
from bursar.training.budget import place_of
from bursar.training.engine import Engine, finite
from bursar.training.optimizer import (
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rate,
    trained,
)


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """What a step measured, still on the device: reading it makes the host wait.

    Args:
        losses: the mean loss of each task before the step, shape `(tasks,)`.
        length: of the gradient, before it was clipped.
    """

    losses: Tensor
    length: Tensor


def task_weights(batch: Batch, loss: str) -> dict[str, float]:
    """Return how much each task's mean loss counts in the loss of a mixed batch.

    Equation 1 of Pilault et al. (2021) is the sum over tasks; their code takes the mean over the
    tasks that are in the batch.

    Args:
        batch: what is trained on.
        loss: `examples` (every example alike), `mean` or `sum` (every task alike).
    """
    match loss:
        case "mean":
            return dict.fromkeys(batch.tasks, 1 / len(batch.parts))
        case "sum":
            return dict.fromkeys(batch.tasks, 1.0)
    return {part.task: len(part.items) / batch.examples for part in batch}


class Stepper:
    """Takes optimiser steps, with warm-up and decay, on weighted losses.

    Args:
        engine: whose model learns.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._config = engine.config.optimizer
        self.optimizer = build_optimizer(engine.model, self._config)

    def step(self, number: int, batch: Batch, weights: Mapping[str, float]) -> Moved:
        """Take a step on the weighted sum of the losses of a batch's tasks."""
        self._engine.model.train()
        place = place_of(
            self._engine.config, number, self._engine.spent
        )  # before it costs anything
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.losses(number, batch, weights)
        set_rate(self.optimizer, self._config, *place)
        longest = self._config.clip or math.inf
        length = torch.nn.utils.clip_grad_norm_(trained(self.optimizer), longest)
        self.optimizer.step()
        return Moved(losses, length)

    def losses(
        self, number: int, batch: Batch, weights: Mapping[str, float] | None = None
    ) -> Tensor:
        """Return the mean loss of each task of a batch, under the dropout of a step.

        The batch passes in `budget.accumulate` pieces. With weights, the gradient of the weighted
        sum is added up on the way.
        """
        engine = self._engine
        engine.seed("dropout", number)
        sizes = {part.task: len(part.items) for part in batch}
        total = {task: torch.zeros((), device=engine.device) for task in sizes}
        for piece in engine.loader.pieces(batch, engine.config.budget.accumulate):
            found = engine.losses(piece, backward=weights is not None)
            shares = {part.task: len(part.items) / sizes[part.task] for part in piece}
            if weights is not None:
                scaled = [loss * (weights[task] * shares[task]) for task, loss in found.items()]
                (scaled[0] if len(scaled) == 1 else torch.stack(scaled).sum()).backward()
            for task, loss in found.items():
                total[task] = total[task] + loss.detach() * shares[task]
        return torch.stack(list(total.values()))

    def read(self, number: int, batch: Batch, moved: Moved, *more: Tensor) -> list[float]:
        """Return the losses, and whatever else was measured, as numbers one can go on from.

        This is the one time in a step that the host waits for the device.
        """
        numbers = torch.cat([moved.losses, *(x.reshape(-1) for x in (*more, moved.length))])
        *values, length = numbers.tolist()
        for task, loss in zip(batch.tasks, values, strict=False):
            finite(loss, f"task {task}, step {number}: the loss")
        for value in values[len(batch.tasks) :]:
            finite(value, f"task {batch.tasks[0]}, step {number}: the loss afterwards")
        names = ", ".join(batch.tasks)
        finite(length, f"task {names}, step {number}: the length of the gradient")
        return values

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state as named tensors."""
        return optimizer_tensors(self.optimizer, self._engine.model)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave; parameters that are not there start anew."""
        load_optimizer_tensors(self.optimizer, self._engine.model, tensors)
