"""An optimiser that takes one step for each batch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from taskmix.tasks.batches import Batch
from taskmix.training.budget import place_of
from taskmix.training.engine import Engine, finite
from taskmix.training.optimizer import (
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
            return dict.fromkeys(batch.tasks, 1 / len(batch.tasks))
        case "sum":
            return dict.fromkeys(batch.tasks, 1.0)
    return {task: size / batch.examples for task, size in batch.sizes.items()}


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
        """Take a step on the weighted sum of the losses of a batch's tasks.

        Each rank adds its part of the gradient. What is clipped is the sum, so that all ranks take
        the step that one process with the whole batch would take.
        """
        ranks = self._engine.ranks
        self._engine.model.train()
        # Where the step is in the budget is known before it costs anything.
        place = place_of(self._engine.config, number, self._engine.spent)
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.losses(number, batch, weights)
        ranks.add_gradients(trained(self.optimizer))
        ranks.send(self._engine.statistics)
        set_rate(self.optimizer, self._config, *place)
        longest = self._config.clip or math.inf
        length = ranks.clip(trained(self.optimizer), longest)
        self.optimizer.step()
        return Moved(losses, length)

    def losses(
        self, number: int, batch: Batch, weights: Mapping[str, float] | None = None
    ) -> Tensor:
        """Return the mean loss of each task of a batch, under the dropout of a step.

        The batch passes in `budget.accumulate` pieces. With weights, this rank's part of the
        gradient of the weighted sum is added up on the way.
        """
        engine = self._engine
        engine.seed("dropout", number)
        engine.spent.add(batch.examples, backward=weights is not None)
        total = {task: torch.zeros((), device=engine.device) for task in batch.tasks}
        pieces = engine.loader.pieces(batch, engine.config.budget.accumulate)
        for piece in engine.weighed(pieces, batch.tasks):
            found = engine.losses(piece)
            shares = {part.task: part.share for part in piece}
            if weights is not None:
                scaled = [loss * (weights[task] * shares[task]) for task, loss in found.items()]
                (scaled[0] if len(scaled) == 1 else torch.stack(scaled).sum()).backward()
            for task, loss in found.items():
                total[task] = total[task] + loss.detach() * shares[task]
        return engine.ranks.total(torch.stack(list(total.values())))

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
