"""Checkpoints: safetensors and JSON, whole or not there, each file with its checksum."""

import json
import logging
import shutil
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from taskmix.errors import UserError
from taskmix.files import whole_folder

MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
NEEDED = ("checksum", "step", "files", "config", "data", "journal", "driver", "selected")
BLOCK = 2**22
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """Everything that a run needs to go on.

    Args:
        step: how many units of the budget were spent.
        model: the model's tensors by name.
        optimizer: the optimisers' tensors by name.
        state: everything else, as JSON-able values.
    """

    step: int
    model: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    state: dict[str, Any]


def save(folder: Path, snapshot: Snapshot) -> Path:
    """Write `step-N` below the folder, and return it."""
    path = folder / f"step-{snapshot.step}"
    with whole_folder(path) as aside:
        save_file(_own(snapshot.model), aside / MODEL)
        save_file(_own(snapshot.optimizer), aside / OPTIMIZER)
        files = {name: _checksum(aside / name) for name in (MODEL, OPTIMIZER)}
        state = {"step": snapshot.step, "files": files, **snapshot.state}
        (aside / STATE).write_text(_text_of(state))
    return path


def _text_of(state: dict[str, Any]) -> str:
    """Return a state as JSON, with its checksum."""
    try:
        return json.dumps(state | {"checksum": _digest(state)})
    except (TypeError, ValueError) as error:
        raise UserError(
            f"step {state['step']}: no checkpoint can be written: expected the decider's "
            f"state_dict() to return what JSON can hold, {error}"
        ) from None


def _own(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors that share no memory, which the file format cannot hold."""
    seen: set[int] = set()
    own = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        own[name] = tensor.contiguous() if memory not in seen else tensor.clone()
        seen.add(memory)
    return own


def _checksum(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _digest(state: dict[str, Any]) -> str:
    return blake2b(json.dumps(state).encode(), digest_size=16).hexdigest()


def load(path: Path) -> Snapshot:
    """Read what `save` wrote; raise if any of it is not as it was written."""
    try:
        state = json.loads((path / STATE).read_text())
        if missing := [key for key in NEEDED if key not in state]:
            raise ValueError(f"found no {missing[0]} in {STATE}")
        if state.pop("checksum") != _digest(state):
            raise ValueError(f"found other bytes in {STATE} than were written")
        for name, checksum in state.pop("files").items():
            if _checksum(path / name) != checksum:
                raise ValueError(f"found other bytes in {name} than were written")
        model, optimizer = load_file(path / MODEL), load_file(path / OPTIMIZER)
    except (OSError, ValueError, TypeError, AttributeError, SafetensorError) as error:
        raise UserError(f"{path}: expected a whole checkpoint, {error}") from None
    return Snapshot(state.pop("step"), model, optimizer, state)


def load_newest(folder: Path) -> Snapshot | None:
    """Read the newest checkpoint that is whole; None if there is none at all.

    A broken one is reported and passed over for an older one; if all are broken, that is an error.
    """
    broken: UserError | None = None
    for step in reversed(steps_in(folder)):
        try:
            return load(folder / f"step-{step}")
        except UserError as error:
            log.warning("%s; looking for an older one", error)
            broken = broken or error
    if broken is not None:
        raise broken
    return None


def prune(folder: Path, newest: int, selected: int | None) -> None:
    """Remove all but the newest ones and the one of the model to keep."""
    for step in steps_in(folder)[:-newest]:
        if step != selected:
            shutil.rmtree(folder / f"step-{step}")


def steps_in(folder: Path) -> list[int]:
    """Return the steps of the checkpoints below a folder, in order."""
    names = [path.name.removeprefix("step-") for path in folder.glob("step-*")]
    return sorted(int(name) for name in names if name.isdigit())
