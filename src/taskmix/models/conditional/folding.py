"""One task's encoder out of a conditioned one, for fast inference."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.conditional.alignment import DiagonalAlignment
from taskmix.models.conditional.bottleneck import ConditionalBottleneck
from taskmix.models.conditional.embeddings import TaskEmbeddings, row_name
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.conditional.families import layers_of, norms_of
from taskmix.models.conditional.layer import ConditionalLayer
from taskmix.models.conditional.norm import ConditionalNorm


def fold(conditioned: ConditionalEncoder, task: str) -> PreTrainedModel:
    """Return a plain transformers encoder with the conditioned one's function for one task.

    In evaluation mode it is the same function, up to rounding: a diagonal alignment goes into the
    embeddings' last linear step, conditional norms become plain ones, and the bottleneck of the
    base layout, which is linear, goes into the last layer's feed-forward part. Dropout in training
    would fall at other places, so the result is for inference or for a new training.

    Attention biases, an alignment matrix and a side stream have no place in a plain encoder: they
    raise. `only` keeps them and folds the rest.

    Args:
        conditioned: the conditioned encoder, which stays as it is.
        task: whose function to fold in.
    """
    conditioned.task_embeddings.index(task)
    stay = stays(conditioned)
    if stay:
        raise UserError(
            f"fold: {' and '.join(stay)} cannot be folded into a plain encoder; "
            "only(task) keeps what cannot and folds the rest"
        )
    return _folded(conditioned, task)


def only(conditioned: ConditionalEncoder, task: str) -> ConditionalEncoder:
    """Return a conditioned encoder for one task, with all that can be folded folded.

    What is left (see `fold`) keeps its generators, so that the result can train on; it has one
    task, whose id is 0.

    Args:
        conditioned: the conditioned encoder, which stays as it is.
        task: the one to keep.
    """
    kept = copy.deepcopy(conditioned.task_embeddings.row(task))
    stay = stays(conditioned)
    if not stay:
        raise UserError(f"only: everything of task {task!r} can be folded; expected a call of fold")
    embeddings = TaskEmbeddings([task], conditioned.task_embeddings.width)
    embeddings.rows[row_name(task)] = kept
    matrix = conditioned.alignment if "alignment" in stay else None
    layers = [
        ConditionalLayer(copy.deepcopy(layer.attention), side=copy.deepcopy(layer.side))
        for _, layer in conditioned.layers()
    ]
    spec = conditioned.spec.model_copy(update={"parts": stay})
    result = ConditionalEncoder(
        _folded(conditioned, task), embeddings, copy.deepcopy(matrix), layers, spec
    )
    return result.train(conditioned.training)


def stays(conditioned: ConditionalEncoder) -> tuple[str, ...]:
    """Return the parts that a plain encoder has no place for."""
    spec = conditioned.spec
    able = {
        "attention": False,
        "alignment": spec.alignment == "diagonal",
        "norm": True,
        "bottleneck": not spec.side_stream(len(conditioned.conditions)),
    }
    return tuple(part for part in spec.parts if not able[part])


@torch.no_grad()
def _folded(conditioned: ConditionalEncoder, task: str) -> PreTrainedModel:
    """Return the encoder with everything folded that can be."""
    plain = copy.deepcopy(conditioned.encoder)
    code = conditioned.task_embeddings.row(task)
    if isinstance(conditioned.alignment, DiagonalAlignment):
        _fold_alignment(plain, conditioned.alignment, code)
    for layer, (_, condition) in zip(layers_of(plain), conditioned.layers(), strict=True):
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
