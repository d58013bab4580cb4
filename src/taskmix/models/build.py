"""Building the model of a run file."""

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.bilstm import BiLSTMEncoder
from taskmix.models.causal import build_causal
from taskmix.models.conditional.build import build as condition_encoder
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.encoders import Encoder, TextEncoder, pretrained_config, text_model
from taskmix.models.images import build_image_encoder
from taskmix.models.multitask import MultiTaskModel
from taskmix.models.spec import ConditionalSpec, ModelSpec
from taskmix.models.tokenizers import pretrained_source
from taskmix.rng import seed_for
from taskmix.tasks.kinds import Kind
from taskmix.tasks.tokenizer import Tokenizer


def build(
    spec: ModelSpec,
    kinds: Mapping[str, Kind],
    tokenizer: Tokenizer | None,
    seed: int,
    own: type[Encoder] | None = None,
) -> MultiTaskModel:
    """Make a new model; its random weights depend on the seed alone.

    The tokenizer is None for images; `own` is the user's encoder class that the spec names.
    """
    source = pretrained_source(spec, own) if tokenizer is not None and own is None else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "encoder"))
        if spec.conditional is not None and tokenizer is not None:
            encoder = build_conditioned(spec, tokenizer, source, list(kinds), seed)
        else:
            encoder = build_encoder(spec, tokenizer, source, own)
    return MultiTaskModel(encoder, kinds, spec, seed)


def build_encoder(
    spec: ModelSpec, tokenizer: Tokenizer | None, source: str | None, own: type[Encoder] | None
) -> Encoder:
    if own is not None:
        return own.for_run(spec, tokenizer.vocabulary if tokenizer is not None else None)
    if tokenizer is None:
        return build_image_encoder(spec)
    return build_text_encoder(spec, source, tokenizer.vocabulary)


def build_text_encoder(spec: ModelSpec, source: str | None, vocabulary: int) -> Encoder:
    """Load the spec's encoder from a folder or hub name, or make it with random weights."""
    if spec.causal:
        return build_causal(spec, source, vocabulary)
    model = text_model(spec, source, vocabulary)
    if spec.encoder == "bilstm":
        return BiLSTMEncoder(model, spec.width, spec.depth, spec.dropout)
    return TextEncoder(model, spec.pooling, spec.freeze)


def build_conditioned(
    spec: ModelSpec, tokenizer: Tokenizer, source: str | None, tasks: Sequence[str], seed: int
) -> Encoder:
    """Make the spec's conditioned encoder, its tasks in this order."""
    assert spec.conditional is not None
    plain = text_model(spec, source, tokenizer.vocabulary)
    conditioned = build_conditional(plain, tasks, spec.conditional, seed)
    return ConditionedTextEncoder(conditioned, spec.pooling)


def build_conditional(
    plain: PreTrainedModel, tasks: Sequence[str], spec: ConditionalSpec, seed: int = 0
) -> ConditionalEncoder:
    """Condition an encoder; an error names the section of the run file."""
    try:
        return condition_encoder(plain, tasks, spec, seed)
    except UserError as error:
        raise UserError(f"model.conditional: {error}") from None


def encoder_revision(name: str) -> str | None:
    """Return the revision that a hub name means today; None for a folder."""
    revision: str | None = getattr(pretrained_config(name), "_commit_hash", None)
    return revision
