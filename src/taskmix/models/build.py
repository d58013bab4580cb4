"""A new model, as a run file asks for it."""

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.conditional.build import build as condition_encoder
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.conditional.spec import ConditionalSpec
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.encoders import (
    Encoder,
    build_image_encoder,
    build_text_encoder,
    pretrained_config,
    text_model,
)
from taskmix.models.multitask import MultiTaskModel
from taskmix.models.spec import ENCODERS, ModelSpec
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

    Args:
        spec: what a run file says of it.
        kinds: by task, what its head has to give.
        tokenizer: how texts become ids; None for images.
        seed: of the random weights.
        own: the encoder of one's own that the spec names.
    """
    folder = pretrained_source(spec, own) if tokenizer is not None and own is None else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "encoder"))
        if spec.conditional is not None and tokenizer is not None:
            encoder = build_conditioned(spec, tokenizer, folder, list(kinds), seed)
        else:
            encoder = build_encoder(spec, tokenizer, folder, own)
    return MultiTaskModel(encoder, kinds, spec, seed)


def build_encoder(
    spec: ModelSpec, tokenizer: Tokenizer | None, folder: str | None, own: type[Encoder] | None
) -> Encoder:
    """Make the encoder: one's own, or from a folder, or with random weights."""
    if own is not None:
        return own.for_run(spec, tokenizer.vocabulary if tokenizer is not None else None)
    if tokenizer is None:
        return build_image_encoder(spec)
    return build_text_encoder(spec, folder, tokenizer.vocabulary)


def build_conditioned(
    spec: ModelSpec, tokenizer: Tokenizer, folder: str | None, tasks: Sequence[str], seed: int
) -> Encoder:
    """Make the conditioned encoder that the spec describes, its tasks in this order."""
    assert spec.conditional is not None
    plain = text_model(spec, folder, tokenizer.vocabulary)
    conditioned = build_conditional(plain, tasks, spec.conditional, seed)
    return ConditionedTextEncoder(conditioned, spec.pooling)


def build_conditional(
    plain: PreTrainedModel, tasks: Sequence[str], spec: ConditionalSpec, seed: int = 0
) -> ConditionalEncoder:
    """Condition an encoder as a run file says it."""
    try:
        return condition_encoder(plain, tasks, spec, seed)
    except UserError as error:
        raise UserError(f"model.conditional: {error}") from None


def pinned(spec: ModelSpec) -> ModelSpec:
    """Return the spec with the revision that its hub name means today."""
    name = spec.over if spec.encoder == "bilstm" else spec.encoder
    if name is None or name in ENCODERS or ":" in name or spec.revision is not None:
        return spec
    if spec.adapt is not None:
        return spec
    found = getattr(pretrained_config(name), "_commit_hash", None)
    return spec.model_copy(update={"revision": found})
