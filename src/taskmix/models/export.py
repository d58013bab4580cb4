"""A task's part of a saved model as a folder for users of transformers, with the same logits.

Tagging and question answering with a linear head are classes of transformers itself for most
architectures. Everything else is written as a class of `taskmix.models.exported`, whose source goes
into the folder too, so that taskmix need not be there to load it.
"""

import copy
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from taskmix.errors import UserError, unknown
from taskmix.files import whole_folder
from taskmix.models import saving
from taskmix.models.causal import BASE, CausalEncoder, save_causal
from taskmix.models.conditional.folding import stays
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.encoders import Encoder, TextEncoder, quiet
from taskmix.models.export_tokenizer import check_tokenizer, export_tokenizer
from taskmix.models.exported import (
    Exported,
    ExportedConfig,
    ExportedForMultipleChoice,
    ExportedForQuestionAnswering,
    ExportedForSequenceClassification,
    ExportedForTokenClassification,
)
from taskmix.models.heads import LinearHead, TwoLayerHead
from taskmix.models.multitask import MultiTaskModel, key
from taskmix.tasks.kinds import Choose, Classify, Generate, Kind, MultiLabel, Regress, Span, Tag
from taskmix.tasks.tokenizer import Tokenizer

TOLERANCE = 1e-5
FORMS: dict[type[Kind], type[Exported]] = {
    Classify: ExportedForSequenceClassification,
    MultiLabel: ExportedForSequenceClassification,
    Regress: ExportedForSequenceClassification,
    Choose: ExportedForMultipleChoice,
    Tag: ExportedForTokenClassification,
    Span: ExportedForQuestionAnswering,
}
"""By kind, the class that holds any encoder, pooling and head."""


def export(folder: Path, task: str, out: Path, *, adapters: bool = False) -> None:
    """Write one task's part of a saved model as a folder for transformers.

    Args:
        folder: where `saving.save` put the model.
        task: which of its tasks.
        out: the folder to write, which must not be there yet.
        adapters: write the adapters of a language model for peft, not the model with them added.
    """
    if out.exists():
        raise UserError(f"{out}: expected a folder to be made, found one that is there already")
    model, tokenizer = saving.load(folder)
    if tokenizer is not None and isinstance(model.kinds.get(task), Generate):
        _export_language_model(model.encoder, tokenizer, folder, out, adapters)
        return
    if adapters:
        raise UserError(f"task {task}: expected a task that generates to export adapters of")
    segments = tokenizer is not None and tokenizer.segments
    converted = convert(model, task, segments=segments)
    if tokenizer is None:
        raise UserError(f"task {task}: expected a model of texts, found one without a tokenizer")
    reads = _reads_segments(model.encoder, model.kinds[task], segments)
    with whole_folder(out) as whole, quiet():
        converted.save_pretrained(whole)
        export_tokenizer(folder, tokenizer, reads).save_pretrained(whole)
        check_tokenizer(whole, tokenizer, task)


def _export_language_model(
    encoder: Encoder, tokenizer: Tokenizer, folder: Path, out: Path, adapters: bool
) -> None:
    """Write the language model that all tasks which generate share, or its adapters."""
    if not isinstance(encoder, CausalEncoder):
        raise UserError(f"{folder}: an encoder such as {type(encoder).__name__} cannot be exported")
    if adapters and not encoder.adapted:
        raise UserError(f"{folder}: expected a model trained with model.lora, found one without")
    with whole_folder(out) as whole, quiet():
        if adapters:
            save_causal(encoder, whole, str(folder) if not (folder / BASE).exists() else None)
        else:
            encoder.merged().save_pretrained(whole)
        words = AutoTokenizer.from_pretrained(folder)
        words.save_pretrained(whole)
    _check_prompts(out, words, tokenizer)


def _check_prompts(out: Path, words: Any, tokenizer: Tokenizer) -> None:
    """Raise unless transformers reads a prompt as it was read in the training."""
    texts = ["A cat.", "Who sat there, then?"]
    for text, [ids] in zip(texts, (tokenizer.continued([t], [""])[0] for t in texts), strict=True):
        expected = [*tokenizer.start.tolist(), *ids.tolist()]
        if words(text)["input_ids"][: len(expected)] != expected:
            raise UserError(
                f"{out}: transformers reads texts otherwise than they were trained with"
            )


def can_export(encoder: PreTrainedConfig | None, kind: Kind) -> str | None:
    """Return why a task's model cannot be exported, or None if it can.

    Args:
        encoder: the configuration of the task's encoder; None if transformers does not know it.
        kind: the kind of task.
    """
    if encoder is None or type(encoder) not in MODEL_MAPPING:
        return "only text encoders of transformers can be exported, this model has another"
    if encoder.is_encoder_decoder:
        return f"a {encoder.model_type} has a decoder too; only encoders alone can be exported"
    if not isinstance(kind, (*FORMS, Generate)):
        return f"transformers has no class of models for a kind such as {type(kind).__name__}"
    return None


def convert(model: MultiTaskModel, task: str, *, segments: bool = True) -> PreTrainedModel:
    """Return one task's part of a model as a transformers model with the same logits.

    A regression's are in the label's own unit.

    Args:
        model: a trained model.
        task: which of its tasks.
        segments: whether its tokenizer gives the second text of a pair a token type of its own.
    """
    if task not in model.kinds:
        raise unknown("task", task, model.kinds)
    kind, encoder = model.kinds[task], model.encoder
    if isinstance(kind, Generate) and isinstance(encoder, CausalEncoder):
        return encoder.merged()
    head = model.heads[key(task)]
    if isinstance(encoder, ConditionedTextEncoder):
        encoder = _folded(encoder, task)
    text = encoder if isinstance(encoder, TextEncoder) else None
    reason = can_export(None if text is None else text.model.config, kind)
    if text is None or reason is not None:
        raise UserError(f"task {task}: {reason}")
    if not isinstance(head, LinearHead | TwoLayerHead):
        raise UserError(f"task {task}: a head such as {type(head).__name__} cannot be exported")
    exported = _exported(text, kind, head, task, segments)
    return _plain(exported) or exported


def _folded(encoder: ConditionedTextEncoder, task: str) -> TextEncoder:
    """Return the plain encoder that a conditioned one is for one task."""
    if stay := stays(encoder.model):
        raise UserError(
            f"task {task}: model.conditional's {' and '.join(stay)} cannot be folded into a plain "
            "encoder and so not be exported; train with the parts alignment, norm and bottleneck, "
            "or use the conditioned encoder's only(task).save_pretrained in Python"
        )
    return TextEncoder(encoder.model.fold(task), encoder.pooling)


def _reads_segments(encoder: Any, kind: Kind, segments: bool) -> bool:
    """Return whether it matters to the encoder or its pooling which text a token is of."""
    types = getattr(encoder.model.config, "type_vocab_size", 0) or 0
    return (segments and types > 1) or (kind.reads == "pooled" and encoder.pooling == "pair")


@torch.no_grad()
def _exported(
    encoder: TextEncoder, kind: Kind, head: LinearHead | TwoLayerHead, task: str, segments: bool
) -> Exported:
    """Return the encoder and the head as a model of our own class."""
    form = next(form for cls, form in FORMS.items() if isinstance(kind, cls))
    config = ExportedConfig(
        encoder=_nameless(encoder.model.config),
        pooling=encoder.pooling,
        marks=kind.marks if isinstance(kind, Classify) else 0,
        hidden_units=head.hidden.out_features if isinstance(head, TwoLayerHead) else 0,
        head_dropout=head.dropout.p,
        segments=segments,
        dtype=torch.float32,
        **_labels(kind),
    )
    with quiet(), torch.random.fork_rng(devices=[]):
        exported = form(config)
    exported.train(mode=False)
    try:
        exported.encoder.load_state_dict(encoder.model.state_dict())
    except RuntimeError:
        raise UserError(
            f"task {task}: an encoder with layers of its own inside a "
            f"{encoder.model.config.model_type} cannot be exported"
        ) from None
    exported.linear.load_state_dict(head.linear.state_dict())
    if isinstance(head, TwoLayerHead) and exported.hidden is not None:
        exported.hidden.load_state_dict(head.hidden.state_dict())
    if isinstance(kind, Regress):
        exported.linear.weight.mul_(kind.scale)
        exported.linear.bias.mul_(kind.scale).add_(kind.mean)
    return exported


def _nameless(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return a copy that does not say in which folder the encoder was."""
    config = copy.deepcopy(config)
    config.name_or_path = ""
    return config


def _labels(kind: Kind) -> dict[str, Any]:
    """Return what a configuration says of a task's labels."""
    about: dict[str, Any] = {"num_labels": kind.width}
    if isinstance(kind, Classify | MultiLabel | Tag):
        about["id2label"] = dict(enumerate(kind.labels))
        about["label2id"] = {label: number for number, label in enumerate(kind.labels)}
    match kind:
        case Classify():
            about["problem_type"] = "single_label_classification"
        case MultiLabel():
            about["problem_type"] = "multi_label_classification"
        case Regress():
            about["problem_type"] = "regression"
    return about


def _plain(exported: Exported) -> PreTrainedModel | None:
    """Return the same model as a class of transformers itself, or None if it has none."""
    if exported.hidden is not None or not isinstance(
        exported, ExportedForTokenClassification | ExportedForQuestionAnswering
    ):
        return None
    config = copy.deepcopy(exported.config.encoder)
    config.id2label, config.label2id = exported.config.id2label, exported.config.label2id
    auto = getattr(transformers, str(exported._auto_class))
    with quiet(), torch.random.fork_rng(devices=[]):
        try:
            plain: PreTrainedModel = auto.from_config(config, dtype=torch.float32)
        except ValueError:  # it has no such class for this architecture
            return None
    plain.train(mode=False)
    return plain if _fill(plain, exported) and _same(plain, exported) else None


def _fill(plain: PreTrainedModel, exported: Exported) -> bool:
    """Copy the weights; return whether there is a place for each and nothing else to fill."""
    base = plain.base_model
    own = [
        module
        for name, module in plain.named_children()
        if module is not base and any(True for _ in module.parameters())
    ]
    if base is plain or len(own) != 1 or not isinstance(own[0], nn.Linear):
        return False
    shapes = [
        {name: tensor.shape for name, tensor in module.state_dict().items()}
        for module in (base, exported.encoder, own[0], exported.linear)
    ]
    if shapes[0] != shapes[1] or shapes[2] != shapes[3]:
        return False
    base.load_state_dict(exported.encoder.state_dict())
    own[0].load_state_dict(exported.linear.state_dict())
    return True


@torch.inference_mode()
def _same(plain: PreTrainedModel, exported: Exported) -> bool:
    """Compare the logits on made-up sequences of different lengths."""
    ids, mask = _sequences(exported.config.encoder)
    inside = mask.bool()
    outputs = [model(input_ids=ids, attention_mask=mask) for model in (plain, exported)]
    for found, expected in zip(*(output.to_tuple() for output in outputs), strict=True):
        difference = (found - expected)[inside].abs().max()
        if not difference <= TOLERANCE * expected.abs().max().clamp(min=1):
            return False
    return True


def _sequences(config: Any) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([[4], [8]])
    mask = (torch.arange(8) < lengths).long()
    ids = torch.arange(16).view(2, 8) * 7919 % config.vocab_size
    pad = config.pad_token_id or 0
    ids = torch.where(ids == pad, (pad + 1) % config.vocab_size, ids)
    return torch.where(mask.bool(), ids, pad), mask
