"""Saving and loading models: a folder that transformers reads, with heads and tasks beside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from taskmix.errors import UserError, untrusted
from taskmix.files import read_json
from taskmix.models.bilstm import BiLSTMEncoder
from taskmix.models.build import build_encoder
from taskmix.models.causal import CausalEncoder, load_adapted, save_causal
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.encoders import LOAD_ERRORS, Encoder, TextEncoder, quiet
from taskmix.models.multitask import MultiTaskModel
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import pretrained_source, pretrained_tokenizer, save_tokenizer
from taskmix.tasks.kinds import Kind, from_spec
from taskmix.tasks.tokenizer import Tokenizer

FORMAT = 2
ABOUT = "taskmix.json"
HEADS = "heads.safetensors"
WEIGHTS = "model.safetensors"
WORDS = "words"
"""The folder of a BiLSTM's frozen encoder."""

Finder = Callable[[str, type[Any]], Any]
"""Finds a user's class by its `module:Class` and its base class."""


def save(model: MultiTaskModel, tokenizer: Tokenizer | None, spec: ModelSpec, folder: Path) -> None:
    """Write the model; `AutoModel.from_pretrained` opens its text encoder."""
    folder.mkdir(parents=True, exist_ok=True)
    own = type(model.encoder) if ":" in (spec.encoder or "") else None
    if isinstance(model.encoder, TextEncoder):
        with quiet():
            model.encoder.model.save_pretrained(folder)
    elif isinstance(model.encoder, ConditionedTextEncoder):
        model.encoder.model.save_pretrained(folder)
    elif isinstance(model.encoder, CausalEncoder):
        save_causal(model.encoder, folder, pretrained_source(spec))
    else:
        if isinstance(model.encoder, BiLSTMEncoder):
            with quiet():
                model.encoder.words.save_pretrained(folder / WORDS)
        save_file(model.encoder.state_dict(), folder / WEIGHTS)
    if tokenizer is not None:
        save_tokenizer(tokenizer, spec, folder, own)
    save_file(model.heads.state_dict(), folder / HEADS)
    about = {
        "format": FORMAT,
        "model": spec.model_dump(),
        "texts": tokenizer is not None,
        "tasks": {name: kind.spec() for name, kind in model.kinds.items()},
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n")


def load(folder: Path, find: Finder | None = None) -> tuple[MultiTaskModel, Tokenizer | None]:
    """Load the model that `save` wrote, with its tokenizer; without `find` no user's class."""
    try:
        return _load(folder, _about(folder), find or refuse(folder))
    except LOAD_ERRORS as error:
        message = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{folder}: expected a whole model, found: {message}") from None


def _load(
    folder: Path, about: dict[str, Any], find: Finder
) -> tuple[MultiTaskModel, Tokenizer | None]:
    spec = ModelSpec(**about["model"])
    kinds = {
        name: from_spec(kind, lambda path: find(path, Kind))
        for name, kind in about["tasks"].items()
    }
    own = find(spec.encoder, Encoder) if spec.encoder and ":" in spec.encoder else None
    tokenizer = pretrained_tokenizer(str(folder), spec.max_length) if about["texts"] else None
    if spec.conditional is not None:
        encoder = _conditioned(folder, spec, list(kinds))
    else:
        encoder = _plain(folder, spec, tokenizer, own)
    model = MultiTaskModel(encoder, kinds, spec, seed=0)
    model.heads.load_state_dict(load_file(folder / HEADS))
    return model.eval(), tokenizer


def _plain(
    folder: Path, spec: ModelSpec, tokenizer: Tokenizer | None, own: type[Encoder] | None
) -> Encoder:
    if spec.lora is not None:
        return load_adapted(spec, folder, pretrained_source(spec))
    source = folder / WORDS if spec.encoder == "bilstm" else folder
    weights = str(source) if tokenizer is not None and own is None else None
    # The folder holds the trained encoder, whatever revision it started from.
    encoder = build_encoder(spec.model_copy(update={"revision": None}), tokenizer, weights, own)
    if not isinstance(encoder, TextEncoder | CausalEncoder):
        encoder.load_state_dict(load_file(folder / WEIGHTS))
    return encoder


def _conditioned(folder: Path, spec: ModelSpec, tasks: list[str]) -> Encoder:
    model = ConditionalEncoder.from_pretrained(folder)
    if list(model.tasks) != tasks:
        raise UserError(
            f"{folder}: expected the tasks {', '.join(tasks)} of {ABOUT} in its task embeddings, "
            f"found {', '.join(model.tasks)}"
        )
    return ConditionedTextEncoder(model, spec.pooling)


def _about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    if not path.exists():
        raise UserError(f"{folder}: expected a taskmix model, found no {ABOUT}")
    about = read_json(path, "the description of a model")
    version = about.get("format")
    if not isinstance(version, int):
        raise UserError(f"{path}: expected the description of a model, found format {version!r}")
    if version > FORMAT:
        raise UserError(f"{path}: found format {version}, this version reads up to {FORMAT}")
    return about


def refuse(folder: Path) -> Finder:
    """Return a finder that raises for every class."""

    def find(name: str, base: type[Any]) -> Any:
        raise untrusted(name, str(folder))

    return find
