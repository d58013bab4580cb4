"""Adding a task to a trained conditioned model."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from taskmix.errors import UserError, unknown
from taskmix.models import saving
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.multitask import LinearHead, MultiTaskModel, TwoLayerHead, key
from taskmix.models.spec import ModelSpec
from taskmix.tasks.kinds import Kind


def adapted(spec: ModelSpec, kinds: Mapping[str, Kind], seed: int) -> MultiTaskModel:
    """Load the model of `spec.adapt` and add the new tasks to it.

    Without `train_all` only the new rows and heads are trained, so that the old tasks' outputs keep
    every bit.
    """
    adapt = spec.adapt
    assert adapt is not None
    model, _ = saving.load(Path(adapt.model))
    encoder = conditioned_encoder(model, adapt.model)
    if not adapt.train_all:
        model.requires_grad_(requires_grad=False)
    for name, kind in kinds.items():
        add_task(model, spec, name, kind, row=adapt.row, head=adapt.head, seed=seed)
        encoder.model.task_embeddings.row(name).requires_grad_()
        model.heads[key(name)].requires_grad_()
    model.find_frozen()
    return model


def conditioned_encoder(model: nn.Module, where: str) -> ConditionedTextEncoder:
    """Return the conditioned encoder of a model; raise if it has none."""
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, ConditionedTextEncoder):
        raise UserError(
            f"{where}: expected a task-conditioned model, trained with `model: {{conditional: "
            f"true}}`, found a {type(encoder or model).__name__}"
        )
    return encoder


def add_task(
    model: MultiTaskModel,
    spec: ModelSpec,
    name: str,
    kind: Kind,
    *,
    row: str | None = None,
    head: str | None = None,
    seed: int = 0,
) -> None:
    """Add a task to a conditioned model; the outputs of the others keep every bit.

    `row` and `head` name the tasks whose embedding and head the new task starts from.
    """
    encoder = conditioned_encoder(model, f"task {name}")
    device = next(model.parameters()).device
    encoder.model.add_task(name, row, seed)
    model.add_task(name, kind, spec, seed)
    model.heads[key(name)].to(device)
    if head is None:
        return
    if head not in model.kinds:
        raise unknown("task", head, model.kinds, "model.adapt.head")
    if not fits(model, head, name):
        raise UserError(
            f"model.adapt.head: the head of {head} does not fit {name}: expected one of the same "
            f"kind with the labels {_labels(kind)}, found {_labels(model.kinds[head])}"
        )
    copy_head(model, head, name)


def fits(model: MultiTaskModel, head: str, task: str) -> bool:
    """Return whether a task's head fits another task: it has the same kind, and all its labels."""
    donor, kind = model.kinds[head], model.kinds[task]
    if type(donor) is not type(kind) or _inputs(model, head) != _inputs(model, task):
        return False
    return set(getattr(kind, "labels", ())) <= set(getattr(donor, "labels", ()))


@torch.no_grad()
def copy_head(model: MultiTaskModel, head: str, task: str) -> None:
    target, source = model.heads[key(task)], model.heads[key(head)]
    donor, kind = model.kinds[head], model.kinds[task]
    rows: Tensor | slice = slice(None)
    if hasattr(kind, "labels"):
        rows = torch.tensor([donor.labels.index(label) for label in kind.labels])  # type: ignore[attr-defined]
    assert isinstance(target, LinearHead | TwoLayerHead)
    assert isinstance(source, LinearHead | TwoLayerHead)
    target.linear.weight.copy_(source.linear.weight[rows])
    target.linear.bias.copy_(source.linear.bias[rows])
    if isinstance(target, TwoLayerHead) and isinstance(source, TwoLayerHead):
        target.hidden.load_state_dict(source.hidden.state_dict())


def _inputs(model: MultiTaskModel, task: str) -> tuple[str, int] | None:
    """Return the form and the input width of a task's head; None for a head of the user."""
    head = model.heads[key(task)]
    if isinstance(head, TwoLayerHead):
        return "two_layer", head.hidden.in_features
    return ("linear", head.linear.in_features) if isinstance(head, LinearHead) else None


def _labels(kind: Kind) -> str:
    return ", ".join(getattr(kind, "labels", ())) or f"of a {kind.name} task"
