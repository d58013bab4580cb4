"""Exporting the encoder and head of a task for transformers, with the same logits.

Tagging and question answering with a linear head are classes of transformers itself for most
architectures. Everything else is a class of `taskmix.models.exported`, whose source is copied into
the folder, so that it loads without taskmix.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from safetensors import SafetensorError
from tokenizers import Tokenizer as Backend
from tokenizers import processors
from torch import Tensor, nn
from transformers import (
    MODEL_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from taskmix.errors import TaskmixError, UserError, unknown
from taskmix.files import whole_folder
from taskmix.models import saving
from taskmix.models.causal import BASE, CausalEncoder, save_causal
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.conditional.folding import fold_parts, unfoldable_parts
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.encoders import Encoder, TextEncoder, quiet
from taskmix.models.exported import (
    Exported,
    ExportedConfig,
    ExportedForMultipleChoice,
    ExportedForQuestionAnswering,
    ExportedForSequenceClassification,
    ExportedForTokenClassification,
)
from taskmix.models.multitask import LinearHead, MultiTaskModel, TwoLayerHead, key
from taskmix.models.tokenizers import auto_tokenizer
from taskmix.tasks.encoding import SEGMENTS
from taskmix.tasks.kinds import Choose, Classify, Generate, Kind, MultiLabel, Regress, Span, Tag
from taskmix.tasks.rows import TextRow
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
"""The exported class of each kind, for any encoder, pooling and head."""


def export(folder: Path, task: str, out: Path, *, adapters: bool = False) -> None:
    """Write a task's encoder and head, or a language model's adapters for peft, to a new folder."""
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
    with _new_folder(out) as aside:
        converted.save_pretrained(aside)
        export_tokenizer(folder, tokenizer, reads).save_pretrained(aside)
        check_tokenizer(aside, tokenizer, task)


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Give a folder to write into; a full disk leaves nothing there and is one sentence."""
    try:
        with whole_folder(out) as aside, quiet():
            yield aside
    except Exception as error:
        # Tokenizers raise a plain Exception where a file cannot be written.
        if not isinstance(error, (OSError, SafetensorError)) and type(error) is not Exception:
            raise
        raise TaskmixError(f"{out}: the model could not be written: {error}") from None


def _export_language_model(
    encoder: Encoder, tokenizer: Tokenizer, folder: Path, out: Path, adapters: bool
) -> None:
    if not isinstance(encoder, CausalEncoder):
        raise UserError(f"{folder}: an encoder such as {type(encoder).__name__} cannot be exported")
    if adapters and not encoder.adapted:
        raise UserError(f"{folder}: expected a model trained with model.lora, found one without")
    with _new_folder(out) as aside:
        if adapters:
            save_causal(encoder, aside, str(folder) if not (folder / BASE).exists() else None)
        else:
            encoder.merged().save_pretrained(aside)
        words = auto_tokenizer(folder)
        words.save_pretrained(aside)
    _check_prompts(out, words, tokenizer)


def _check_prompts(out: Path, words: Any, tokenizer: Tokenizer) -> None:
    """Raise unless transformers tokenizes a prompt as in training."""
    texts = ["A cat.", "Who sat there, then?"]
    prompts, _ = tokenizer.continued(texts, [""] * len(texts))
    for text, ids in zip(texts, prompts, strict=True):
        expected = [*tokenizer.start.tolist(), *ids.tolist()]
        if words(text)["input_ids"][: len(expected)] != expected:
            raise UserError(
                f"{out}: transformers reads texts otherwise than they were trained with"
            )


def can_export(encoder: PreTrainedConfig | None, kind: Kind) -> str | None:
    """Return why a task's model cannot be exported, or None if it can."""
    if encoder is None or type(encoder) not in MODEL_MAPPING:
        return "only text encoders of transformers can be exported, this model has another"
    if encoder.is_encoder_decoder:
        return f"a {encoder.model_type} has a decoder too; only encoders alone can be exported"
    if not isinstance(kind, (*FORMS, Generate)):
        return f"transformers has no class of models for a kind such as {type(kind).__name__}"
    return None


def convert(model: MultiTaskModel, task: str, *, segments: bool = True) -> PreTrainedModel:
    """Return a task's encoder and head as a transformers model with the same logits.

    Those of a regression are in the label's unit. `segments` is whether the tokenizer gives the
    second text of a pair a token type of its own.
    """
    if task not in model.kinds:
        raise unknown("task", task, model.kinds)
    kind, encoder = model.kinds[task], model.encoder
    if isinstance(kind, Generate) and isinstance(encoder, CausalEncoder):
        return encoder.merged()
    head = model.heads[key(task)]
    biases = None
    if isinstance(encoder, ConditionedTextEncoder):
        biases, encoder = _biases(encoder.model, task), _folded(encoder, task)
    text = encoder if isinstance(encoder, TextEncoder) else None
    reason = can_export(None if text is None else text.model.config, kind)
    if text is None or reason is not None:
        raise UserError(f"task {task}: {reason}")
    if not isinstance(head, LinearHead | TwoLayerHead):
        raise UserError(f"task {task}: a head such as {type(head).__name__} cannot be exported")
    exported = _exported(text, kind, head, task, segments, biases)
    return _plain(exported) or exported


class _Biases(NamedTuple):
    """The attention biases of one task."""

    blocks: Tensor  # (layers, heads, blocks, size, size)
    positions: int


@torch.no_grad()
def _biases(model: ConditionalEncoder, task: str) -> _Biases | None:
    parts = [c.attention for _, c in model.layers() if c.attention is not None]
    code = model.task_embeddings.row(task)
    blocks = [part.blocks_of(code) for part in parts]
    return _Biases(torch.stack(blocks), parts[0].positions) if parts else None


def _folded(encoder: ConditionedTextEncoder, task: str) -> TextEncoder:
    """Return the plain encoder with the conditioned one's function, but for attention biases."""
    if parts := [part for part in unfoldable_parts(encoder.model) if part != "attention"]:
        raise UserError(
            f"task {task}: model.conditional's {' and '.join(parts)} cannot be folded into a plain "
            "encoder and so not be exported; train with a diagonal alignment and the base layout, "
            "or use the conditioned encoder's only(task).save_pretrained in Python"
        )
    return TextEncoder(fold_parts(encoder.model, task), encoder.pooling)


def _reads_segments(encoder: Any, kind: Kind, segments: bool) -> bool:
    """Return whether the encoder or its pooling distinguishes the texts of a pair."""
    types = getattr(encoder.model.config, "type_vocab_size", 0) or 0
    return (segments and types > 1) or (kind.reads == "pooled" and encoder.pooling == "pair")


@torch.no_grad()
def _exported(
    encoder: TextEncoder,
    kind: Kind,
    head: LinearHead | TwoLayerHead,
    task: str,
    segments: bool,
    biases: _Biases | None,
) -> Exported:
    """Return the encoder and the head as a model of our class."""
    form = next(form for cls, form in FORMS.items() if isinstance(kind, cls))
    config = ExportedConfig(
        encoder=_nameless(encoder.model.config),
        pooling=encoder.pooling,
        marks=kind.marks if isinstance(kind, Classify) else 0,
        hidden_units=head.hidden.out_features if isinstance(head, TwoLayerHead) else 0,
        head_dropout=head.dropout.p,
        segments=segments,
        bias_blocks=None if biases is None else list(biases.blocks.shape[:-1]),
        bias_positions=0 if biases is None else biases.positions,
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
    if biases is not None and exported.biases is not None:
        exported.biases.copy_(biases.blocks)
    exported.linear.load_state_dict(head.linear.state_dict())
    if isinstance(head, TwoLayerHead) and exported.hidden is not None:
        exported.hidden.load_state_dict(head.hidden.state_dict())
    if isinstance(kind, Regress):
        exported.linear.weight.mul_(kind.scale)
        exported.linear.bias.mul_(kind.scale).add_(kind.mean)
    return exported


def _nameless(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return a copy without the folder of the encoder."""
    config = copy.deepcopy(config)
    config.name_or_path = ""
    return config


def _labels(kind: Kind) -> dict[str, Any]:
    """Return the arguments of a configuration about a task's labels."""
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
    """Return the same model as a class of transformers itself, if there is one."""
    plain_kinds = (ExportedForTokenClassification, ExportedForQuestionAnswering)
    if exported.hidden or exported.biases is not None or not isinstance(exported, plain_kinds):
        return None
    config = copy.deepcopy(exported.config.encoder)
    config.id2label, config.label2id = exported.config.id2label, exported.config.label2id
    auto = getattr(transformers, str(exported._auto_class))
    with quiet(), torch.random.fork_rng(devices=[]):
        try:
            plain: PreTrainedModel = auto.from_config(
                config, dtype=torch.float32, trust_remote_code=False
            )
        except ValueError:  # it has no such class for this architecture
            return None
    plain.train(mode=False)
    return plain if _fill(plain, exported) and _same(plain, exported) else None


def _fill(plain: PreTrainedModel, exported: Exported) -> bool:
    """Copy the weights; return whether both models have the same ones."""
    base = plain.base_model
    heads = [
        module
        for name, module in plain.named_children()
        if module is not base and any(True for _ in module.parameters())
    ]
    if base is plain or len(heads) != 1 or not isinstance(heads[0], nn.Linear):
        return False
    shapes = [
        {name: tensor.shape for name, tensor in module.state_dict().items()}
        for module in (base, exported.encoder, heads[0], exported.linear)
    ]
    if shapes[0] != shapes[1] or shapes[2] != shapes[3]:
        return False
    base.load_state_dict(exported.encoder.state_dict())
    heads[0].load_state_dict(exported.linear.state_dict())
    return True


@torch.inference_mode()
def _same(plain: PreTrainedModel, exported: Exported) -> bool:
    """Compare the logits on artificial sequences of different lengths."""
    ids, mask = _sequences(exported.config.encoder)
    inside = mask.bool()
    outputs = [model(input_ids=ids, attention_mask=mask) for model in (plain, exported)]
    for logits, expected in zip(*(output.to_tuple() for output in outputs), strict=True):
        difference = (logits - expected)[inside].abs().max()
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


def export_tokenizer(folder: Path, tokenizer: Tokenizer, segments: bool) -> PreTrainedTokenizerFast:
    """Return the tokenizer for an exported folder; `segments`: whether the model uses token types.

    It pads and truncates on the right, at the length of the training, and gives the columns that
    the model reads, whatever the default of its architecture.
    """
    special: dict[str, Any] = dict(auto_tokenizer(folder).special_tokens_map)
    if "pad_token" not in special:
        # Masked tokens do not matter, but padding must be a token that is in no text.
        special["pad_token"] = next(iter(special.values()), None)
    return PreTrainedTokenizerFast(
        tokenizer_object=_with_segments(tokenizer) if segments else tokenizer.untruncated(),
        model_max_length=tokenizer.max_length,
        padding_side="right",
        truncation_side="right",
        model_input_names=["input_ids", "attention_mask"] + [SEGMENTS] * segments,
        **special,
    )


def check_tokenizer(folder: Path, tokenizer: Tokenizer, task: str) -> None:
    """Raise unless the tokenizer in a folder gives the tokens of the training."""
    loaded = auto_tokenizer(folder)
    texts = ["A cat.", "Who sat there, then?", "far, far away " * tokenizer.max_length]
    pairs = texts[::-1]
    columns = loaded(texts, pairs, truncation=True)
    expected = [encoding.ids for encoding in tokenizer.encode(texts, pairs)]
    same = columns["input_ids"] == expected
    if SEGMENTS in columns:
        types = [_types(tokenizer, text, pair) for text, pair in zip(texts, pairs, strict=True)]
        same = same and columns[SEGMENTS] == types
    if not same:
        raise UserError(
            f"task {task}: transformers would read this model's texts with another tokenizer "
            f"({type(loaded).__name__}) than it was trained with, so it cannot be exported"
        )


def _types(tokenizer: Tokenizer, text: str, pair: str | None) -> list[int]:
    """Return the token types of the training: 1 from the start of the second text on."""
    columns = Classify(("no", "yes")).encode([TextRow(1, text, pair)], tokenizer, "probe")
    length, second = len(columns.ragged["input_ids"][0]), int(columns.per_sequence["second"][0])
    return [int(0 < second <= place) for place in range(length)]


def _with_segments(tokenizer: Tokenizer) -> Backend:
    """Return a copy of the backend, without truncation, with the token types of `_types`."""
    # Some tokenizers (RoBERTa's) give both texts of a pair the same type, some (Funnel's) give a
    # special token another type.
    backend = tokenizer.untruncated()
    probes = [(backend.encode("a"), _types(tokenizer, "a", None))]
    probes.append((backend.encode("a", "a"), _types(tokenizer, "a", "a")))
    if any(encoding.type_ids != types for encoding, types in probes):
        single, pair = (
            _template(encoding.tokens, encoding.sequence_ids, types) for encoding, types in probes
        )
        tokens = {token for token in (*single, *pair) if not token.startswith("$")}
        ids = [(name, backend.token_to_id(name)) for name in {t.rsplit(":", 1)[0] for t in tokens}]
        template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
        backend.post_processor = processors.Sequence([*_trimming(backend), template])
    return backend


def _template(tokens: list[str], texts: list[int | None], types: list[int]) -> list[str]:
    """Return the special tokens around one or two texts, for `TemplateProcessing`."""
    names = [
        f"{token if text is None else '$' + 'AB'[text]}:{kind}"
        for token, text, kind in zip(tokens, texts, types, strict=True)
    ]
    # A text of several tokens is one entry of the template.
    return [
        name
        for place, name in enumerate(names)
        if texts[place] is None or place == 0 or texts[place] != texts[place - 1]
    ]


def _trimming(backend: Backend) -> list[processors.ByteLevel]:
    """Return the step that excludes spaces from a token's characters, if the backend has one."""
    step = json.loads(backend.to_str())["post_processor"] or {}
    for part in step.get("processors", [step]):
        if part.get("trim_offsets"):
            space = part.get("add_prefix_space", True)
            return [processors.ByteLevel(trim_offsets=True, add_prefix_space=space)]
    return []
