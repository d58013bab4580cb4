"""Scores of a model on a split of a task."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bursar.models.multitask import MultiTaskModel
from bursar.tasks.batches import Batch, in_order
from bursar.tasks.encoding import Encoded
from bursar.tasks.kinds.base import Scored
from bursar.tasks.parts import Split
from bursar.tasks.task import Task
from bursar.training.folder import Scores


def tensors(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """A batch's columns on the device."""
    return {name: torch.from_numpy(column).to(device) for name, column in batch.columns.items()}


@torch.inference_mode()
def predict(
    model: MultiTaskModel,
    task: Task,
    split: Encoded,
    batch: int,
    device: torch.device,
) -> tuple[list[Any], float]:
    """Raw predictions for all items of a split in order, and the mean loss where labels are."""
    model.eval()
    raw: list[Any] = [None] * len(split)
    total = 0.0
    for part in in_order(task.name, split, batch):
        inputs = tensors(part, device)
        logits = model(task.name, inputs)
        total += float(task.kind.loss(logits, inputs)) * len(part.items)
        for item, prediction in zip(part.items, task.kind.predictions(logits, inputs), strict=True):
            raw[item] = prediction
    return raw, total / len(split)


def evaluate(
    model: MultiTaskModel, task: Task, split: Split, batch: int, device: torch.device
) -> Scores:
    """A task's metrics and loss on a split."""
    raw, loss = predict(model, task, split.encoded, batch, device)
    metrics = metrics_of(task, task.kind.scored(raw, split.encoded, split.source.rows()))
    return Scores(mean(metrics), metrics, loss, len(split))


def baseline(task: Task, train: Encoded, split: Split) -> dict[str, float]:
    """The metrics of predicting without looking: the majority class, the mean."""
    return metrics_of(task, task.kind.baseline(train, split.encoded, split.source.rows()))


def metrics_of(task: Task, scored: Scored) -> dict[str, float]:
    """Each metric of a task by name."""
    return {
        metric.name: float(metric.compute(scored.predicted, scored.expected, scored.groups))
        for metric in task.metrics
    }


def mean(values: Mapping[str, float]) -> float:
    """The plain mean: of a task's metrics, of a run's scores."""
    return sum(values.values()) / len(values)
