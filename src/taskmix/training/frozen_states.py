"""A cache of what frozen layers give: they run once on a split, training reads the states."""

import logging
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from taskmix.files import whole_file
from taskmix.models.multitask import MultiTaskModel
from taskmix.tasks.batches import FROZEN_STATES, Items, make_batch
from taskmix.tasks.cache import cache_folder
from taskmix.tasks.encoding import IDS, MASK, Encoded
from taskmix.training.loading import dev_batches, to_device

ItemsT = TypeVar("ItemsT", bound=Items)

FORMAT = 1
ROOM = 4 << 30
"""Bytes that the states of one split may take; a larger split goes through all layers each time."""
log = logging.getLogger(__name__)


class FrozenStates:
    """Adds to splits the column of states from which a model's trained layers start.

    Args:
        model: whose frozen layers these are; a model without any, or a split of no text, changes
            nothing.
        batch: how many items pass at a time.
        device: where the model is.
        cache: the folder of the cache; `default_cache()` if None.
        working: is told what is being done.
        room: bytes that the states of one split may take.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        batch: int,
        device: torch.device,
        cache: Path | None = None,
        working: Callable[[str], None] = lambda text: None,
        room: int = ROOM,
    ) -> None:
        self._model = model
        self._batch = batch
        self._device = device
        self._folder = cache_folder(cache, "frozen")
        self._working = working
        self._room = room
        self._function = _function(model) if isinstance(model, MultiTaskModel) else ""

    def add(self, task: str, split: ItemsT) -> ItemsT:
        """Return the split with its states: from the cache, or computed and put there."""
        if not (isinstance(self._model, MultiTaskModel) and isinstance(split, Encoded)):
            return split
        if not len(self._model.frozen) or IDS not in split.ragged or FROZEN_STATES in split.ragged:
            return split
        shape = (len(split.ragged[IDS]), self._model.encoder.width)
        if shape[0] * shape[1] * np.dtype(np.float32).itemsize > self._room:
            log.warning("%s: frozen layers run each time: there are too many states to cache", task)
            return split
        path = self._folder / f"{self._key(task, split, self._model)}.npy"
        if not path.exists():
            if not self._exact(task, split, self._model):
                log.warning("%s: frozen layers run each time: states are not all they give", task)
                return split
            with whole_file(path) as aside:
                states = np.lib.format.open_memmap(aside, mode="w+", dtype=np.float32, shape=shape)
                self._fill(states, task, split, self._model)
                states.flush()
        states = np.load(path, mmap_mode="r")
        return replace(split, ragged={**split.ragged, FROZEN_STATES: states})

    def _key(self, task: str, split: Encoded, model: MultiTaskModel) -> str:
        """Return what names all that the states depend on: the layers, and what they read."""
        sequences = split.sequences if split.sequences is not None else np.empty(0)
        read = [split.ragged[IDS], split.offsets, sequences, *split.per_sequence.values()]
        parts = [np.ascontiguousarray(array).tobytes() for array in read]
        whose = model.task_id(task) if model.frozen.by_task else ""
        settings = f"{FORMAT} {self._batch} {self._device.type} {self._function} {whose}"
        return digest(settings.encode(), *parts)

    @torch.inference_mode()
    def _exact(self, task: str, split: Encoded, model: MultiTaskModel) -> bool:
        """Return whether cached states give the same, on the longest and shortest items.

        They do not if the layers hand on more than the states, or see the padding.
        """
        model.eval()
        order = np.argsort(split.lengths(), kind="stable")
        items = np.unique(order[[0, -1]])
        batch = to_device(make_batch({task: split}, {task: items}), self._device)
        mask = batch.inputs[MASK].bool()
        with model.frozen.recording() as outputs:
            expected = model.encode(batch).tokens
        if not outputs or expected is None:
            return False
        with model.frozen.given(outputs[0] * mask[..., None]):
            found = model.encode(batch).tokens
        assert found is not None
        close = torch.isclose(found[mask], expected[mask], rtol=1e-3, atol=1e-4)
        return bool(close.all())

    @torch.inference_mode()
    def _fill(
        self, states: NDArray[np.float32], task: str, split: Encoded, model: MultiTaskModel
    ) -> None:
        model.eval()
        done = 0
        for batch in dev_batches(task, split, self._batch, self._device):
            self._working(f"frozen layers of {task}: example {done} of {len(split)}")
            with model.frozen.alone(), model.frozen.recording() as outputs:
                model.encode(batch)
            which, _ = split.sequences_of(batch.parts[0].items)
            rows = outputs[0].float().cpu().numpy()
            for row, sequence in zip(rows, which, strict=True):
                start, end = split.offsets[sequence], split.offsets[sequence + 1]
                states[start:end] = row[: end - start]
            done += batch.examples


def _function(model: MultiTaskModel) -> str:
    """Return what names the function that the frozen layers compute.

    It is in the weights and, for a transformers model, in its settings.
    """
    settings = str(getattr(getattr(model.encoder, "model", None), "config", None))
    return digest(settings.encode(), *(tensor_bytes(tensor) for tensor in model.frozen.state()))


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """Return the content of a tensor."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def digest(*parts: bytes) -> str:
    """Return what names some contents, in order."""
    found = blake2b(digest_size=16)
    for part in parts:
        found.update(blake2b(part, digest_size=16).digest())
    return found.hexdigest()
