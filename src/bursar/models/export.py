"""A task's model as a folder that plain transformers loads, with the same logits.

Token heads (tag, span) are those of transformers. Its sequence heads are not ours: they put a layer
with tanh on the first token. Two things make them so:

- tanh is the identity on small numbers. The head's dense layer gives the logits times 2⁻³⁰, its
  output layer multiplies them by 2³⁰; both are exact, and so is tanh in between.
- The mean over tokens is what attention gives when all queries are zero. One more layer with such
  attention writes the head's outputs at the first token, scaled up by 2³⁰, so that nothing is left
  of the residual there, beside an anchor of ±2⁵⁴ in two other places: it alone sets the variance,
  and so a layer norm is a multiplication by a known number. What else a norm subtracts is the same
  everywhere and is read off at a place that holds nothing. The layer's feed-forward part is free
  for a two-layer head.

All of it holds in float32 (and, to its own precision, in bfloat16); in float16 the anchor is no
number. Such a model is for serving, not for training on.
"""

import copy
import math
import tempfile
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)

from bursar.errors import UserError, unknown
from bursar.models import store
from bursar.models.encoders import TextEncoder, quiet
from bursar.models.heads import LinearHead
from bursar.models.multitask import MultiTaskModel, key
from bursar.tasks.kinds import Choose, Classify, Kind, MultiLabel, Regress, Span, Tag

SMALL = 2.0**-30
LARGE = 2.0**30
ANCHOR = 2.0**54
STEEP = 2.0**24
TOLERANCE = 1e-5
_PARTS = attrgetter("attention.self.value", "attention.output", "intermediate.dense", "output")


def export(folder: Path, task: str, out: Path) -> None:
    """Write one task's part of a saved model as a folder for plain transformers.

    Args:
        folder: where `store.save` put the model.
        task: which of its tasks.
        out: the folder to write, which must not be there yet.
    """
    if out.exists():
        raise UserError(f"{out}: expected a folder to be made, found one that is there already")
    model, tokenizer = store.load(folder)
    plain = convert(model, task)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as aside, quiet():
        whole = Path(aside) / "whole"
        plain.save_pretrained(whole)
        words = AutoTokenizer.from_pretrained(folder)
        if tokenizer is not None:
            words.model_max_length = tokenizer.max_length
        words.save_pretrained(whole)
        whole.rename(out)


def convert(model: MultiTaskModel, task: str) -> PreTrainedModel:
    """One task's part of a model as a transformers model with the same logits.

    A regression's are in the label's own unit, since no one else knows its mean and spread.
    """
    if task not in model.kinds:
        raise unknown("task", task, model.kinds)
    kind, encoder, head = model.kinds[task], model.encoder, model.heads[key(task)]
    if not isinstance(encoder, TextEncoder):
        raise UserError(f"task {task}: expected a text model, found one of images")
    if isinstance(kind, Classify) and kind.marks:
        raise UserError(f"task {task}: no head of transformers reads marked pieces")
    if kind.reads == "pooled" and encoder.pooling == "pair":
        raise UserError(
            f"task {task}: no head of transformers compares two texts; such a model can be "
            "exported with `pooling: mean`"
        )
    pools = kind.reads == "pooled" and encoder.pooling == "mean"
    plain = _empty(encoder.model, kind, pools)
    if pools:
        _sequence_head(plain, *_pooling_layer(plain, head, task), kind, task)
    elif not isinstance(head, LinearHead):
        raise UserError(
            f"task {task}: transformers has no two-layer head on single tokens; such a model can "
            "be exported with `head: linear` or, unless it tags or finds spans, `pooling: mean`"
        )
    elif kind.reads == "tokens":
        _copy(_token_head(plain, task), head.linear)
    else:
        _sequence_head(plain, head.linear.weight, head.linear.bias, kind, task)
    _agree(model, task, plain.eval())
    return plain


def _empty(encoder: PreTrainedModel, kind: Kind, pools: bool) -> PreTrainedModel:
    """The transformers model for this kind, with the encoder's weights."""
    config = _config(encoder.config, kind)
    config.num_hidden_layers += int(pools)
    with quiet(), torch.random.fork_rng(devices=[]):
        plain: PreTrainedModel = _auto(kind).from_config(config, dtype=torch.float32)
    rest = plain.base_model.load_state_dict(encoder.state_dict(), strict=False)
    if rest.unexpected_keys:
        raise UserError(f"{type(plain).__name__} has no place for {rest.unexpected_keys[0]}")
    return plain


def _auto(kind: Kind) -> Any:
    match kind:
        case Tag():
            return AutoModelForTokenClassification
        case Span():
            return AutoModelForQuestionAnswering
        case Choose():
            return AutoModelForMultipleChoice
    return AutoModelForSequenceClassification


def _config(config: PreTrainedConfig, kind: Kind) -> Any:
    config = copy.deepcopy(config)
    match kind:
        case Classify(labels=labels) | MultiLabel(labels=labels) | Tag(labels=labels):
            config.id2label = dict(enumerate(labels))
            config.label2id = {label: number for number, label in enumerate(labels)}
        case Regress():
            config.num_labels = 1
    match kind:
        case Classify():
            config.problem_type = "single_label_classification"
        case MultiLabel():
            config.problem_type = "multi_label_classification"
        case Regress():
            config.problem_type = "regression"
    return config


def _token_head(plain: PreTrainedModel, task: str) -> nn.Linear:
    for name in ("classifier", "qa_outputs"):
        if isinstance(found := getattr(plain, name, None), nn.Linear):
            return found
    raise _strange(plain, task)


def _strange(plain: PreTrainedModel, task: str) -> UserError:
    return UserError(f"task {task}: no way is known to give our logits to a {type(plain).__name__}")


@torch.no_grad()
def _copy(to: nn.Linear, linear: nn.Linear) -> None:
    to.weight.copy_(linear.weight)
    to.bias.copy_(linear.bias)


@torch.no_grad()
def _sequence_head(
    plain: PreTrainedModel, weight: Tensor, bias: Tensor, kind: Kind, task: str
) -> None:
    """Make the first token's dense layer give small logits, and the output layer enlarge them."""
    dense, last = _dense_and_last(plain, task)
    outputs = len(weight)
    _room(outputs, dense, task)
    _zero(dense, last)
    dense.weight[:outputs] = weight * SMALL
    dense.bias[:outputs] = bias * SMALL
    scale, mean = (kind.scale, kind.mean) if isinstance(kind, Regress) else (1.0, 0.0)
    last.weight[:, :outputs] = torch.eye(outputs) * (scale / SMALL)
    last.bias.fill_(mean)


def _dense_and_last(plain: PreTrainedModel, task: str) -> tuple[Any, Any]:
    """BERT's pooler and classifier, or the two layers of RoBERTa's classifier."""
    base: Any = plain.base_model
    head: Any = getattr(plain, "classifier", None)
    pooler = getattr(base, "pooler", None)
    if isinstance(head, nn.Linear) and pooler is not None:
        return pooler.dense, head
    if hasattr(head, "dense") and hasattr(head, "out_proj"):
        return head.dense, head.out_proj
    raise _strange(plain, task)


def _room(places: int, dense: Any, task: str) -> None:
    if places > dense.out_features:
        raise UserError(
            f"task {task}: its head needs {places} places, but the encoder is "
            f"{dense.out_features} wide"
        )


@torch.no_grad()
def _pooling_layer(plain: PreTrainedModel, head: Any, task: str) -> tuple[Tensor, Tensor]:
    """Make the last layer write the head's outputs at the first token; says how to read them."""
    layer = _last_layer(plain, task)
    first = head.linear if isinstance(head, LinearHead) else head.hidden
    zero = len(first.weight)  # the place that holds nothing
    start = 0 if first is head.linear else zero + 1
    outputs = len(head.linear.weight)
    _room(max(zero, start + outputs) + 3, layer.attention.output.dense, task)
    _zero(layer)
    step = _mean_of_tokens(layer, first)
    if first is not head.linear:
        _room(zero, layer.intermediate.dense, task)
        _second_layer(layer, head.linear, zero, step)
    weight = torch.zeros(outputs, first.in_features)
    weight[range(outputs), range(start, start + outputs)] = 1
    weight[:, zero] -= 1
    return weight, torch.zeros(outputs)


def _last_layer(plain: PreTrainedModel, task: str) -> Any:
    base: Any = plain.base_model
    try:
        layer = base.encoder.layer[-1]
        _PARTS(layer)
    except AttributeError:
        raise UserError(
            f"task {task}: a mean over tokens cannot be written as a layer of a "
            f"{type(base).__name__}; such a model can be exported with `pooling: first`"
        ) from None
    return layer


def _mean_of_tokens(layer: Any, linear: nn.Linear) -> float:
    """Make attention write `linear` of the mean token; returns what 1 is after the first norm."""
    outputs, width = linear.weight.shape
    attention = layer.attention.output
    layer.attention.self.value.weight[:outputs] = linear.weight
    attention.dense.weight[range(outputs), range(outputs)] = LARGE
    attention.dense.bias[:outputs] = linear.bias * LARGE
    attention.dense.bias[-2:] = torch.tensor([ANCHOR, -ANCHOR])
    attention.LayerNorm.weight.fill_(1.0)
    step = LARGE / (ANCHOR * math.sqrt(2 / width))
    layer.output.LayerNorm.weight.fill_(math.sqrt(1 + layer.output.LayerNorm.eps) / step)
    return step


def _second_layer(layer: Any, linear: nn.Linear, zero: int, step: float) -> None:
    """Make the feed-forward part write `linear` of the rectified places behind `zero`.

    Its activation, mostly GELU, is a rectifier to numbers that are large enough.
    """
    inner, outer = layer.intermediate.dense, layer.output.dense
    inner.weight[range(zero), range(zero)] = STEEP / step
    inner.weight[:zero, zero] = -STEEP / step
    places = slice(zero + 1, zero + 1 + len(linear.weight))
    outer.weight[places, :zero] = linear.weight * (step / STEEP)
    outer.bias[places] = linear.bias * step


def _zero(*modules: nn.Module) -> None:
    for module in modules:
        for parameter in module.parameters():
            parameter.zero_()


@torch.inference_mode()
def _agree(model: MultiTaskModel, task: str, plain: PreTrainedModel) -> None:
    """Compare both on made-up sequences of different lengths."""
    ids, mask = _sequences(plain.config)
    kind = model.kinds[task]
    expected = model.eval()(task, {"input_ids": ids, "attention_mask": mask})
    if isinstance(kind, Regress):
        expected = expected * kind.scale + kind.mean
    if isinstance(kind, Choose):
        output = plain(input_ids=ids[None], attention_mask=mask[None]).logits.T
    else:
        output = plain(input_ids=ids, attention_mask=mask)
        output = (
            torch.stack([output.start_logits, output.end_logits], dim=-1)
            if isinstance(kind, Span)
            else output.logits
        )
    if kind.reads == "tokens":
        output, expected = output[mask.bool()], expected[mask.bool()]
    difference = float((output - expected).abs().max() / expected.abs().max().clamp(min=1))
    if not difference <= TOLERANCE:
        raise _strange(plain, task)


def _sequences(config: Any) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([[4], [8]])
    mask = (torch.arange(8) < lengths).long()
    ids = torch.arange(16).view(2, 8) * 7919 % config.vocab_size
    pad = config.pad_token_id or 0
    ids = torch.where(ids == pad, (pad + 1) % config.vocab_size, ids)
    return torch.where(mask.bool(), ids, pad), mask
