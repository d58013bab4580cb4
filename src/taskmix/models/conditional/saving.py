"""Saving and loading a conditioned encoder: safetensors and JSON, no code."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from taskmix.errors import UserError
from taskmix.files import read_json
from taskmix.models.conditional.build import build
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.encoders import first_line, load_weights, pretrained_config, quiet
from taskmix.models.spec import checked

FORMAT = 1
ABOUT = "conditional.json"
WEIGHTS = "conditional.safetensors"
_ENCODER = "encoder."


def save(conditioned: ConditionalEncoder, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        conditioned.encoder.save_pretrained(folder)
    save_file(_added(conditioned), folder / WEIGHTS)
    about = {
        "format": FORMAT,
        "tasks": list(conditioned.tasks),
        "conditional": conditioned.spec.model_dump(),
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> ConditionalEncoder:
    """Load an encoder in evaluation mode, frozen as its spec says."""
    tasks, options = _about(folder)
    options = {"embedding_start": 1.0} | options  # of version 0.2.0, for rows of new tasks
    conditioned = build(_encoder(folder), tasks, checked(options, str(folder / ABOUT)))
    weights = _tensors(folder / WEIGHTS)
    expected = _added(conditioned)
    wrong = sorted(weights.keys() ^ expected.keys()) or sorted(
        name for name, tensor in expected.items() if weights[name].shape != tensor.shape
    )
    if wrong:
        raise UserError(
            f"{folder / WEIGHTS}: expected the weights that {ABOUT} describes, "
            f"found {wrong[0]!r} to be missing, too many or of another shape"
        )
    # Assigned, not copied: the weights keep the precision that they were saved in.
    conditioned.load_state_dict(weights, strict=False, assign=True)
    return conditioned.eval()


def _added(conditioned: ConditionalEncoder) -> dict[str, Tensor]:
    """Return the weights beside those of the pretrained encoder."""
    state = conditioned.state_dict()
    return {name: t.contiguous() for name, t in state.items() if not name.startswith(_ENCODER)}


def _about(folder: Path) -> tuple[list[str], dict[str, Any]]:
    path = folder / ABOUT
    if not path.exists():
        raise UserError(f"{folder}: expected a conditioned encoder, found no {ABOUT}")
    about = read_json(path, "the description of a conditioned encoder")
    version, tasks, options = about.get("format"), about.get("tasks"), about.get("conditional")
    if version != FORMAT:
        raise UserError(f"{path}: found format {version}, this version of taskmix reads {FORMAT}")
    if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
        tasks = None
    if tasks is None or not isinstance(options, dict):
        raise UserError(f"{path}: expected a list of task names and a mapping of options")
    return tasks, options


def _encoder(folder: Path) -> PreTrainedModel:
    config = pretrained_config(str(folder))
    return load_weights(AutoModel, str(folder), config, dtype="auto", attn_implementation="sdpa")


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path}: expected the weights of the conditional modules, "
            f"found them missing or broken ({first_line(error)})"
        ) from None
