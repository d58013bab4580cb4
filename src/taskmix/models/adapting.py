"""One task more for a conditioned model that was trained before."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from taskmix.errors import UserError, unknown
from taskmix.models import saving
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.heads import LinearHead, TwoLayerHead
from taskmix.models.multitask import MultiTaskModel, key
from taskmix.models.spec import ModelSpec
from taskmix.tasks.kinds import Kind


def adapted(spec: ModelSpec, kinds: Mapping[str, Kind], seed: int) -> MultiTaskModel:
    """Return the model that `spec.adapt` starts from, with the new tasks added.

    Unless all of it is to be trained, only the new rows and heads are: the old tasks' answers keep
    every bit.

    Args:
        spec: of the model, with `adapt`.
        kinds: by new task, what its head has to give.
        seed: of the new tasks' first weights.
    """
    said = spec.adapt
    assert said is not None
    model, _ = saving.load(Path(said.model))
    encoder = conditioned_encoder(model, said.model)
    if not said.train_all:
        model.requires_grad_(requires_grad=False)
    for name, kind in kinds.items():
        add_task(model, spec, name, kind, row=said.row, head=said.head, seed=seed)
        encoder.model.task_embeddings.row(name).requires_grad_()
        model.heads[key(name)].requires_grad_()
    model.frozen = encoder.frozen()
    return model


def conditioned_encoder(model: nn.Module, where: str) -> ConditionedTextEncoder:
    """Return the conditioned encoder of a model; raise if it has another."""
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
    """Add a task to a conditioned model; what the others give keeps every bit.

    Args:
        model: the model.
        spec: the kind of head.
        name: of the new task.
        kind: what its head has to give.
        row: the task whose embedding the new one starts from; None for a random one.
        head: the task whose head the new one starts from; None for a new one.
        seed: of what is random.
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
    """Return whether a task's head can answer another task: the same kind, and all its labels.

    Args:
        model: has both tasks.
        head: the task whose head it is.
        task: the task to be answered.
    """
    donor, kind = model.kinds[head], model.kinds[task]
    if type(donor) is not type(kind) or _inputs(model, head) != _inputs(model, task):
        return False
    return set(getattr(kind, "labels", ())) <= set(getattr(donor, "labels", ()))


@torch.no_grad()
def copy_head(model: MultiTaskModel, head: str, task: str) -> None:
    """Start a task's head from another's that fits it: the outputs of its own labels."""
    ours, theirs = model.heads[key(task)], model.heads[key(head)]
    donor, kind = model.kinds[head], model.kinds[task]
    places: Tensor | slice = slice(None)
    if hasattr(kind, "labels"):
        places = torch.tensor([donor.labels.index(label) for label in kind.labels])  # type: ignore[attr-defined]
    assert isinstance(ours, LinearHead | TwoLayerHead)
    assert isinstance(theirs, LinearHead | TwoLayerHead)
    ours.linear.weight.copy_(theirs.linear.weight[places])
    ours.linear.bias.copy_(theirs.linear.bias[places])
    if isinstance(ours, TwoLayerHead) and isinstance(theirs, TwoLayerHead):
        ours.hidden.load_state_dict(theirs.hidden.state_dict())


def _inputs(model: MultiTaskModel, task: str) -> tuple[str, int] | None:
    """Return the form of a task's head and how many numbers it reads; None if it is its own."""
    head = model.heads[key(task)]
    if isinstance(head, TwoLayerHead):
        return "two_layer", head.hidden.in_features
    return ("linear", head.linear.in_features) if isinstance(head, LinearHead) else None


def _labels(kind: Kind) -> str:
    return ", ".join(getattr(kind, "labels", ())) or f"of a {kind.name} task"
