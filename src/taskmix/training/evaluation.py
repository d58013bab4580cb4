"""Scores of a model on a split of a task."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from taskmix.tasks.kinds.base import Scored
from taskmix.tasks.parts import Split
from taskmix.tasks.task import Task
from taskmix.training.folder import Scores
from taskmix.training.loading import dev_batches
from taskmix.training.ranks import ALONE, Ranks


@torch.inference_mode()
def predict(
    model: nn.Module,
    task: Task,
    split: Split,
    size: int,
    device: torch.device,
    ranks: Ranks = ALONE,
    bfloat16: bool = False,
) -> tuple[list[Any], float]:
    """Return raw predictions for all items in order, and the mean loss of the labelled ones."""
    model.eval()
    predictions: list[dict[int, Any] | None] = []
    losses, counts = [], []
    for batch in dev_batches(task.name, split.items, size, device, ranks.cut):
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            outputs = model(batch)[task.name]
        [part] = batch
        counts.append(task.kind.counted(part.columns, len(part.items)))
        losses.append(task.kind.loss(outputs, part.columns) * counts[-1])
        predicted = task.kind.predictions(outputs, part.columns)
        by_item = dict(zip(part.items.tolist(), predicted, strict=True))
        predictions.append(by_item if batch.counts else None)
    summed = torch.stack(losses)
    measured = zip(predictions, summed.tolist(), counts, strict=True)
    batches = ranks.in_batch_order([None if batch[0] is None else batch for batch in measured])
    raw = {item: value for predicted, _, _ in batches for item, value in (predicted or {}).items()}
    total = summed.new_tensor([loss for _, loss, _ in batches]).sum()
    counted = max(1, sum(count for *_, count in batches))
    return [raw[item] for item in range(len(raw))], float(total) / counted


def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    size: int,
    device: torch.device,
    ranks: Ranks = ALONE,
    bfloat16: bool = False,
) -> Scores:
    raw, loss = predict(model, task, split, size, device, ranks, bfloat16)
    metrics = metrics_of(task, task.kind.scored(raw, split.items, split.source.rows()))
    return Scores(score_of(task, metrics), metrics, loss, split.rows)


def baseline(task: Task, train: Any, split: Split) -> float | None:
    """Return the score of the majority class or of the mean; None if the kind has no baseline."""
    scored = task.kind.baseline(train, split.items, split.source.rows())
    return None if scored is None else score_of(task, metrics_of(task, scored))


def metrics_of(task: Task, scored: Scored) -> dict[str, float]:
    return {
        metric.name: float(metric.compute(scored.predicted, scored.expected, scored.groups))
        for metric in task.metrics
    }


def score_of(task: Task, metrics: Mapping[str, float]) -> float:
    """Return the mean of a task's metrics, each scaled so that higher is better."""
    return mean({metric.name: metric.worth(metrics[metric.name]) for metric in task.metrics})


def mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)
