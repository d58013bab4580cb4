"""Checkpoints: safetensors and JSON, written atomically, each file with its checksum."""

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from taskmix.errors import UserError
from taskmix.files import checksum, hash_of, parse_json, whole_folder

MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
STATE_TYPES: dict[str, type[Any]] = {
    "checksum": str,
    "step": int,
    "files": dict,
    "config": str,
    "data": dict,
    "journal": int,
    "driver": dict,
    "selected": dict,
}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """Everything that a run needs to resume."""

    step: int
    model: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    state: dict[str, Any]  # JSON-able


def save(folder: Path, snapshot: Snapshot) -> None:
    with whole_folder(folder / f"step-{snapshot.step}") as aside:
        save_file(_apart(snapshot.model), aside / MODEL)
        save_file(_apart(snapshot.optimizer), aside / OPTIMIZER)
        files = {name: checksum(aside / name) for name in (MODEL, OPTIMIZER)}
        state = {"step": snapshot.step, "files": files, **snapshot.state}
        try:
            (aside / STATE).write_text(json.dumps(state | {"checksum": hash_of(json.dumps(state))}))
        except (TypeError, ValueError) as error:
            raise UserError(
                f"step {snapshot.step}: no checkpoint can be written: expected the decider's "
                f"state_dict() to return JSON-able values, {error}"
            ) from None


def _apart(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors that share no memory, since safetensors cannot store shared ones."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.contiguous() if memory not in seen else tensor.clone()
        seen.add(memory)
    return apart


def load(path: Path) -> Snapshot:
    """Read a checkpoint; raise if any byte of it has changed."""
    try:
        state = parse_json((path / STATE).read_bytes(), any_number=True)
        for key, kind in STATE_TYPES.items():
            value: Any = state.get(key) if isinstance(state, dict) else None
            if not isinstance(value, kind) or (kind is int and value < 0):
                raise ValueError(f"no {key} in {STATE}")
        if state.pop("checksum") != hash_of(json.dumps(state)):
            raise ValueError(f"other bytes in {STATE} than were written")
        for name, expected in state.pop("files").items():
            if checksum(path / name) != expected:
                raise ValueError(f"other bytes in {name} than were written")
        model, optimizer = load_file(path / MODEL), load_file(path / OPTIMIZER)
    except (OSError, ValueError, TypeError, AttributeError, SafetensorError) as error:
        raise UserError(f"{path}: expected a whole checkpoint, found {error}") from None
    return Snapshot(state.pop("step"), model, optimizer, state)


def load_newest(folder: Path) -> Snapshot | None:
    """Read the newest intact checkpoint; None if there is none, an error if all are broken."""
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
    """Remove all checkpoints but the newest ones and the selected one."""
    for step in steps_in(folder)[:-newest]:
        if step != selected:
            shutil.rmtree(folder / f"step-{step}")


def steps_in(folder: Path) -> list[int]:
    names = [path.name.removeprefix("step-") for path in folder.glob("step-*")]
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())
