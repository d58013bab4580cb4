"""The tokenizer of an encoder: pretrained, or trained on the texts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from taskmix.errors import UserError
from taskmix.files import cache_folder, cached, hash_of
from taskmix.models.encoders import Encoder, first_line, packaged_minilm, quiet
from taskmix.models.smollm import smollm2
from taskmix.models.spec import ENCODERS, ModelSpec
from taskmix.tasks.tokenizer import END, PAD, START, Tokenizer

ENCODER_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
GENERATOR_TOKENS = {"pad_token": PAD, "bos_token": START, "eos_token": END}


@dataclass(frozen=True)
class Corpus:
    """The training texts, for an encoder whose vocabulary is learned, and their fingerprint."""

    fingerprint: str
    read: Callable[[], Iterable[str]]


def pretrained_source(spec: ModelSpec, own: type[Encoder] | None = None) -> str | None:
    """Return the folder or hub name of the pretrained encoder and tokenizer, if there is one.

    Of `own`, an encoder class of the user, only the tokenizer may be pretrained.
    """
    if spec.adapt is not None:
        return spec.adapt.model
    if own is not None:
        return own.tokenizer
    if spec.encoder == "small":
        return None
    name = spec.over if spec.encoder == "bilstm" else spec.encoder
    if name in (None, "minilm"):
        return str(packaged_minilm())
    if spec.encoder in ("cnn", "lenet"):
        raise UserError(f"model.encoder: {spec.encoder!r} reads images, but the tasks are texts")
    if spec.encoder == "bilstm" and name in ENCODERS:
        raise UserError(f"model.over: expected a pretrained text encoder, found {name!r}")
    return str(smollm2()) if name == "smollm2" else name


def tokenizer_for(
    spec: ModelSpec, texts: Corpus, cache: Path | None = None, own: type[Encoder] | None = None
) -> Tokenizer:
    """Load the tokenizer of the pretrained encoder, or one trained on the texts and cached."""
    name = pretrained_source(spec, own)
    if name is not None:
        return pretrained_tokenizer(name, spec.max_length, spec.revision)
    form = "bytes" if spec.causal else "bpe"
    settings = f"{form}\x1f{spec.vocabulary}\x1f{texts.fingerprint}"
    train = Tokenizer.train_generator if spec.causal else Tokenizer.train
    return cached(
        cache_folder(cache, "vocabularies") / hash_of(settings),
        lambda aside: train(texts.read(), spec.vocabulary, spec.max_length).save(aside),
        lambda folder: Tokenizer.from_folder(folder, spec.max_length),
    )


def pretrained_tokenizer(name: str, max_length: int, revision: str | None = None) -> Tokenizer:
    with quiet():
        try:
            loaded = auto_tokenizer(name, revision)
        # The tokenizers library raises a bare Exception for a damaged file.
        except Exception as error:
            raise UserError(
                f"model.encoder: found no tokenizer at {name!r}: {first_line(error)}"
            ) from None
    if not loaded.is_fast:
        raise UserError(f"model.encoder: {name!r} has no fast tokenizer, expected one")
    # A folder without one gets the empty tokenizer of its architecture.
    if len(set(loaded.get_vocab().values()) - set(loaded.all_special_ids)) < 2:
        raise UserError(f"model.encoder: found no tokenizer at {name!r}: its vocabulary is empty")
    return Tokenizer(
        loaded.backend_tokenizer, max_length, loaded.pad_token_id or 0, loaded.eos_token_id
    )


def auto_tokenizer(name: str | Path, revision: str | None = None) -> Any:
    """Load a tokenizer of transformers; no code beside it runs."""
    return AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)


def save_tokenizer(
    tokenizer: Tokenizer, spec: ModelSpec, folder: Path, own: type[Encoder] | None = None
) -> None:
    """Write the tokenizer's files, so that `AutoTokenizer` opens the folder."""
    name = pretrained_source(spec, own)
    with quiet():
        if name is not None:
            auto_tokenizer(name, spec.revision).save_pretrained(folder)
            return
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer.backend,
            model_max_length=spec.max_length,
            **(GENERATOR_TOKENS if spec.causal else ENCODER_TOKENS),
        ).save_pretrained(folder)
