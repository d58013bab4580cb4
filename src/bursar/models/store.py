"""Building a model from its spec, and keeping it in a folder that transformers reads too."""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from bursar.errors import UserError
from bursar.models.encoders import (
    Encoder,
    TextEncoder,
    build_image_encoder,
    build_text_encoder,
    first_line,
    packaged_minilm,
    quiet,
)
from bursar.models.multitask import MultiTaskModel
from bursar.models.spec import ModelSpec
from bursar.rng import seed_for
from bursar.tasks.encoding import default_cache
from bursar.tasks.kinds import Kind, from_spec
from bursar.tasks.tokenizer import Tokenizer

FORMAT = 1
ABOUT = "bursar.json"
HEADS = "heads.safetensors"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Texts:
    """The training texts, for an encoder that learns its own vocabulary.

    Args:
        fingerprint: names them.
        read: gives them, one by one.
    """

    fingerprint: str
    read: Callable[[], Iterable[str]]


def source(spec: ModelSpec) -> str | None:
    """The folder or hub name of the pretrained encoder; None for random weights."""
    if spec.encoder == "small":
        return None
    if spec.encoder in (None, "minilm"):
        return str(packaged_minilm())
    if spec.encoder in ("cnn", "lenet"):
        raise UserError(f"model.encoder: {spec.encoder!r} reads images, but the tasks are texts")
    return spec.encoder


def tokenizer_for(spec: ModelSpec, texts: Texts, cache: Path | None = None) -> Tokenizer:
    """The tokenizer of the pretrained encoder, or one learned from the texts and then kept."""
    name = source(spec)
    if name is not None:
        return _pretrained_tokenizer(name, spec.max_length)
    words = f"bpe\x1f{spec.vocabulary}\x1f{texts.fingerprint}"
    folder = (cache or default_cache()) / "vocabularies"
    path = folder / blake2b(words.encode(), digest_size=16).hexdigest() / TOKENIZER
    if not path.exists():
        learned = Tokenizer.train(texts.read(), spec.vocabulary, spec.max_length)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            learned.save(Path(aside))
            (Path(aside) / TOKENIZER).replace(path)
    return Tokenizer.from_folder(path.parent, spec.max_length)


def _pretrained_tokenizer(name: str, max_length: int) -> Tokenizer:
    with quiet():
        try:
            loaded = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise UserError(
                f"model.encoder: found no tokenizer at {name!r}: {first_line(error)}"
            ) from None
    if not loaded.is_fast:
        raise UserError(f"model.encoder: {name!r} has no fast tokenizer, expected one")
    return Tokenizer(loaded.backend_tokenizer, max_length, loaded.pad_token_id or 0)


def build(
    spec: ModelSpec, kinds: Mapping[str, Kind], tokenizer: Tokenizer | None, seed: int
) -> MultiTaskModel:
    """A new model; its random weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "encoder"))
        encoder = _encoder(spec, tokenizer, source(spec) if tokenizer else None)
    return MultiTaskModel(encoder, kinds, spec, seed)


def _encoder(spec: ModelSpec, tokenizer: Tokenizer | None, folder: str | None) -> Encoder:
    if tokenizer is None:
        return build_image_encoder(spec)
    return build_text_encoder(spec, folder, tokenizer.vocabulary)


def save(model: MultiTaskModel, tokenizer: Tokenizer | None, spec: ModelSpec, folder: Path) -> None:
    """Write the model; a text encoder's part of it opens with `AutoModel.from_pretrained`."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model.encoder, TextEncoder):
        with quiet():
            model.encoder.model.save_pretrained(folder)
    else:
        save_file(model.encoder.state_dict(), folder / WEIGHTS)
    if tokenizer is not None:
        save_tokenizer(tokenizer, spec, folder)
    save_file(model.heads.state_dict(), folder / HEADS)
    about = {
        "format": FORMAT,
        "model": spec.model_dump(),
        "texts": tokenizer is not None,
        "tasks": {name: kind.spec() for name, kind in model.kinds.items()},
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n")


def save_tokenizer(tokenizer: Tokenizer, spec: ModelSpec, folder: Path) -> None:
    """Write the tokenizer's files, so that `AutoTokenizer` opens the folder."""
    name = source(spec)
    with quiet():
        if name is not None:
            AutoTokenizer.from_pretrained(name).save_pretrained(folder)
            return
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer.backend,
            pad_token="[PAD]",
            unk_token="[UNK]",
            cls_token="[CLS]",
            sep_token="[SEP]",
            mask_token="[MASK]",
            model_max_length=spec.max_length,
        ).save_pretrained(folder)


def load(folder: Path) -> tuple[MultiTaskModel, Tokenizer | None]:
    """The model that `save` wrote, with its tokenizer."""
    path = folder / ABOUT
    if not path.exists():
        raise UserError(f"{folder}: expected a bursar model, found no {ABOUT}")
    about = json.loads(path.read_text())
    if about["format"] > FORMAT:
        raise UserError(
            f"{path}: found format {about['format']}, this version reads up to {FORMAT}"
        )
    spec = ModelSpec(**about["model"])
    kinds = {name: from_spec(kind) for name, kind in about["tasks"].items()}
    tokenizer = _pretrained_tokenizer(str(folder), spec.max_length) if about["texts"] else None
    encoder = _encoder(spec, tokenizer, str(folder) if tokenizer else None)
    if tokenizer is None:
        encoder.load_state_dict(load_file(folder / WEIGHTS))
    model = MultiTaskModel(encoder, kinds, spec, seed=0)
    model.heads.load_state_dict(load_file(folder / HEADS))
    return model.eval(), tokenizer
