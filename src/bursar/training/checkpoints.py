"""Checkpoints: safetensors and JSON, whole or not there."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from bursar.errors import UserError
from bursar.training.files import whole_folder

MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"


@dataclass(frozen=True)
class Snapshot:
    """Everything that a run needs to go on.

    Args:
        step: how many steps were done.
        model: the model's tensors by name.
        optimizer: the optimiser's tensors by name.
        state: everything else, as JSON-able values.
    """

    step: int
    model: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    state: dict[str, Any]


def save(folder: Path, snapshot: Snapshot) -> Path:
    """Write `step-N` below the folder; returns it."""
    path = folder / f"step-{snapshot.step}"
    with whole_folder(path) as aside:
        save_file(_own(snapshot.model), aside / MODEL)
        save_file(_own(snapshot.optimizer), aside / OPTIMIZER)
        (aside / STATE).write_text(json.dumps({"step": snapshot.step, **snapshot.state}))
    return path


def _own(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def load(path: Path) -> Snapshot:
    """Read what `save` wrote."""
    try:
        state = json.loads((path / STATE).read_text())
        model, optimizer = load_file(path / MODEL), load_file(path / OPTIMIZER)
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{path}: expected a checkpoint, {error}") from None
    return Snapshot(state.pop("step"), model, optimizer, state)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint below the folder."""
    steps = _steps(folder)
    return folder / f"step-{steps[-1]}" if steps else None


def prune(folder: Path, newest: int, kept: int | None) -> None:
    """Remove all but the newest ones and the one whose model is to be kept."""
    for step in _steps(folder)[:-newest]:
        if step != kept:
            shutil.rmtree(folder / f"step-{step}")


def _steps(folder: Path) -> list[int]:
    names = [path.name.removeprefix("step-") for path in folder.glob("step-*")]
    return sorted(int(name) for name in names if name.isdigit())
