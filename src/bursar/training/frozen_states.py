"""What frozen layers give for a split: computed once, kept on disk, trained from ever after."""

import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bursar.models.frozen import FROZEN_STATES
from bursar.models.multitask import MultiTaskModel
from bursar.tasks.batches import Batch, in_order
from bursar.tasks.encoding import IDS, Encoded, default_cache
from bursar.training.evaluation import tensors

FORMAT = 1
ROOM = 4 << 30
"""Bytes that the states of one split may take; a larger split goes through all layers each time."""
log = logging.getLogger(__name__)


class FrozenStates:
    """Adds to splits the column of states from which a model's trained layers start.

    Args:
        model: whose frozen layers these are; one without any, or a split of no text, changes
            nothing.
        batch: how many items pass at a time.
        device: where the model is.
        cache: the folder to keep them in; `default_cache()` if None.
        working: is told what is being done.
        room: bytes that the states of one split may take.
    """

    def __init__(
        self,
        model: MultiTaskModel,
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
        self._folder = (cache or default_cache()) / "frozen"
        self._working = working
        self._room = room
        # What the layers compute is in the weights, and of a transformers model in its settings.
        settings = str(getattr(getattr(model.encoder, "model", None), "config", None))
        weights = (_bytes(tensor) for tensor in model.frozen.state())
        self._function = _digest(settings.encode(), *weights)

    def add(self, task: str, split: Encoded) -> Encoded:
        """The split with its states: from the cache, or computed and put there."""
        if not len(self._model.frozen) or IDS not in split.ragged or FROZEN_STATES in split.ragged:
            return split
        shape = (len(split.ragged[IDS]), self._model.encoder.width)
        if shape[0] * shape[1] * np.dtype(np.float32).itemsize > self._room:
            log.warning("%s: frozen layers run each time: there are too many states to keep", task)
            return split
        path = self._folder / f"{self._key(split)}.npy"
        if not path.exists():
            if not self._exact(task, split):
                log.warning("%s: frozen layers run each time: states are not all they give", task)
                return split
            self._write(path, task, split, shape)
        states = np.load(path, mmap_mode="r")
        return replace(split, ragged={**split.ragged, FROZEN_STATES: states})

    def _key(self, split: Encoded) -> str:
        """Tells apart all that the states depend on: the layers, and what the encoder reads."""
        sequences = split.sequences if split.sequences is not None else np.empty(0)
        read = [split.ragged[IDS], split.offsets, sequences, *split.per_sequence.values()]
        parts = [np.ascontiguousarray(array).tobytes() for array in read]
        settings = f"{FORMAT} {self._batch} {self._device.type} {self._function}"
        return _digest(settings.encode(), *parts)

    @torch.inference_mode()
    def _exact(self, task: str, split: Encoded) -> bool:
        """Whether the encoder gives the same from kept states, on the longest and shortest items.

        Not if its layers hand on more than the states, or see the padding.
        """
        self._model.eval()
        order = np.argsort(split.lengths(), kind="stable")
        items = np.unique(order[[0, -1]])
        inputs = tensors(Batch(task, items, split.batch(items)), self._device)
        mask = inputs["attention_mask"].bool()
        frozen, encoder = self._model.frozen, self._model.encoder
        with frozen.recording() as outputs:
            expected = encoder(inputs).tokens
        if not outputs or expected is None:
            return False
        with frozen.given(outputs[0] * mask[..., None]):
            found = encoder(inputs).tokens
        assert found is not None
        close = torch.isclose(found[mask], expected[mask], rtol=1e-3, atol=1e-4)
        return bool(close.all())

    def _write(self, path: Path, task: str, split: Encoded, shape: tuple[int, int]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="making-", dir=path.parent) as aside:
            file = Path(aside) / path.name
            states = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
            self._fill(states, task, split)
            states.flush()
            file.replace(path)

    @torch.inference_mode()
    def _fill(self, states: NDArray[np.float32], task: str, split: Encoded) -> None:
        self._model.eval()
        done = 0
        for batch in in_order(task, split, self._batch):
            self._working(f"frozen layers of {task}: example {done} of {len(split)}")
            with self._model.frozen.alone(), self._model.frozen.recording() as outputs:
                self._model.encoder(tensors(batch, self._device))
            which, _ = split.sequences_of(batch.items)
            rows = outputs[0].float().cpu().numpy()
            for row, sequence in zip(rows, which, strict=True):
                start, end = split.offsets[sequence], split.offsets[sequence + 1]
                states[start:end] = row[: end - start]
            done += len(batch.items)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(blake2b(part, digest_size=16).digest())
    return digest.hexdigest()
