"""Folding a conditioned encoder into a plain one for a single task, for fast inference."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.conditional.modules import (
    ConditionalBottleneck,
    ConditionalLayer,
    ConditionalNorm,
    DiagonalAlignment,
    TaskEmbeddings,
    norms_of,
    row_name,
)
from taskmix.models.frozen import layer_stack


def fold(conditioned: ConditionalEncoder, task: str) -> PreTrainedModel:
    conditioned.task_embeddings.index(task)
    if parts := unfoldable_parts(conditioned):
        raise UserError(
            f"fold: {' and '.join(parts)} cannot be folded into a plain encoder; "
            "only(task) keeps what cannot and folds the rest"
        )
    return fold_parts(conditioned, task)


def only(conditioned: ConditionalEncoder, task: str) -> ConditionalEncoder:
    row = copy.deepcopy(conditioned.task_embeddings.row(task))
    parts = unfoldable_parts(conditioned)
    if not parts:
        raise UserError(f"only: everything of task {task!r} can be folded; expected a call of fold")
    embeddings = TaskEmbeddings([task], conditioned.task_embeddings.width)
    embeddings.rows[row_name(task)] = row
    matrix = conditioned.alignment if "alignment" in parts else None
    layers = [
        ConditionalLayer(copy.deepcopy(layer.attention), side=copy.deepcopy(layer.side))
        for _, layer in conditioned.layers()
    ]
    spec = conditioned.spec.model_copy(update={"parts": parts})
    result = ConditionalEncoder(
        fold_parts(conditioned, task), embeddings, copy.deepcopy(matrix), layers, spec
    )
    return result.train(conditioned.training)


def unfoldable_parts(conditioned: ConditionalEncoder) -> tuple[str, ...]:
    """Return the parts that have no place in a plain encoder."""
    spec = conditioned.spec
    foldable = {
        "attention": False,
        "alignment": spec.alignment == "diagonal",
        "norm": True,
        "bottleneck": not spec.side_stream(len(conditioned.conditions)),
    }
    return tuple(part for part in spec.parts if not foldable[part])


@torch.no_grad()
def fold_parts(conditioned: ConditionalEncoder, task: str) -> PreTrainedModel:
    """Return the plain encoder with every foldable part folded into it."""
    plain = copy.deepcopy(conditioned.encoder)
    code = conditioned.task_embeddings.row(task)
    if isinstance(conditioned.alignment, DiagonalAlignment):
        _fold_alignment(plain, conditioned.alignment, code)
    layers: list[Any] = layer_stack(plain)
    for layer, (_, condition) in zip(layers, conditioned.layers(), strict=True):
        for norm, conditional in zip(norms_of(layer), condition.norms, strict=False):
            assert isinstance(conditional, ConditionalNorm)
            norm.weight += conditional.change(norm, code)
        if condition.bottleneck is not None:
            _fold_bottleneck(layer.output.dense, condition.bottleneck, code)
    return plain


def _fold_alignment(plain: Any, alignment: DiagonalAlignment, code: Tensor) -> None:
    """Fold (1 + γ)(w y + b) + β = ((1 + γ) w) y + ((1 + γ) b + β)."""
    gamma, beta = alignment.film(code)
    last: nn.LayerNorm | nn.Linear = plain.embeddings.LayerNorm
    scale = 1 + gamma
    if hasattr(plain, "embeddings_project"):
        last, scale = plain.embeddings_project, scale.unsqueeze(-1)
    last.weight *= scale
    last.bias.copy_((1 + gamma) * last.bias + beta)


def _fold_bottleneck(dense: nn.Linear, bottleneck: ConditionalBottleneck, code: Tensor) -> None:
    """Fold f + up(down((1 + γ) f + β)), which is linear in x as f = W x + b is."""
    gamma, beta = bottleneck.film(code)
    down, up = bottleneck.down, bottleneck.up
    change = (up.weight @ down.weight) * (1 + gamma)
    fixed = up.weight @ (down.weight @ beta + down.bias) + up.bias
    dense.bias.add_(change @ dense.bias + fixed)
    dense.weight.add_(change @ dense.weight)
