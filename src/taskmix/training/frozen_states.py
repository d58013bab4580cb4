"""Caches of the outputs of frozen layers, which run once on each split."""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from taskmix.config import RunConfig
from taskmix.files import cache_folder, cached
from taskmix.models.bilstm import BiLSTMEncoder
from taskmix.models.multitask import MultiTaskModel
from taskmix.tasks.batches import FROZEN_STATES, Batch, Items, make_batch
from taskmix.tasks.encoding import IDS, MASK, Encoded
from taskmix.training.loading import dev_batches, pick_device, to_device
from taskmix.training.prepare import Prepared
from taskmix.training.ranks import ALONE, Ranks
from taskmix.training.watching import Watchers

ItemsT = TypeVar("ItemsT", bound=Items)
EncodedT = TypeVar("EncodedT", bound=Encoded)

FORMAT = 1
STATES = "states.npy"
MAX_CACHE_BYTES = 4 << 30  # of one split; a larger split passes all layers each time
log = logging.getLogger(__name__)


class _StatesCache(ABC):
    """Adds a column to splits: the states from which the trained layers start."""

    folder: ClassVar[str]
    dtype: ClassVar[type[np.floating[Any]]]

    def __init__(
        self,
        *,
        batch: int,
        device: torch.device,
        cache: Path | None = None,
        working: Callable[[str], None] = lambda text: None,
        max_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        self._batch = batch
        self._device = device
        self._folder = cache_folder(cache, self.folder)
        self._working = working
        self._max_bytes = max_bytes

    def _with_states(self, task: str, split: EncodedT, width: int) -> EncodedT:
        shape = (len(split.ragged[IDS]), width)
        if shape[0] * shape[1] * np.dtype(self.dtype).itemsize > self._max_bytes:
            log.warning("%s: frozen layers run each time: too many states to cache", task)
            return split
        path = self._folder / self._key(task, split)
        if not path.exists() and not self._exact(task, split):
            log.warning("%s: frozen layers run each time: their states do not suffice", task)
            return split

        def build(aside: Path) -> None:
            file = aside / STATES
            states = np.lib.format.open_memmap(file, mode="w+", dtype=self.dtype, shape=shape)
            if hasattr(os, "posix_fallocate"):  # a full disk is an error here, later it is SIGBUS
                with file.open("r+b") as opened:
                    os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
            self._fill(states, task, split)
            states.flush()

        states = cached(path, build, lambda folder: np.load(folder / STATES, mmap_mode="r"))
        return replace(split, ragged={**split.ragged, FROZEN_STATES: states})

    @torch.inference_mode()
    def _fill(self, states: NDArray[Any], task: str, split: Encoded) -> None:
        done = 0
        for batch in dev_batches(task, split, self._batch, self._device):
            self._working(f"frozen layers of {task}: example {done} of {len(split)}")
            rows = self._states(batch).cpu().numpy()
            which, _ = split.sequences_of(batch.parts[0].items)
            for row, sequence in zip(rows, which, strict=True):
                start, end = split.offsets[sequence], split.offsets[sequence + 1]
                states[start:end] = row[: end - start]
            done += batch.examples

    @abstractmethod
    def _key(self, task: str, split: Encoded) -> str:
        """Return a hash of the layers, the settings and the inputs."""

    @abstractmethod
    def _states(self, batch: Batch) -> torch.Tensor:
        """Return the states of a batch, shape `(sequences, tokens, width)`."""

    def _exact(self, task: str, split: Encoded) -> bool:
        """Return whether the model computes the same from the states."""
        return True


class FrozenStates(_StatesCache):
    """Caches the outputs of a model's frozen layers; other models and splits stay as they are."""

    folder = "frozen"
    dtype = np.float32

    def __init__(self, model: nn.Module, *, ranks: Ranks = ALONE, **options: Any) -> None:
        super().__init__(**options)
        self._ranks = ranks
        self._model = model if isinstance(model, MultiTaskModel) and len(model.frozen) else None
        self._function = "" if self._model is None else _function(self._model)

    def add(self, task: str, split: ItemsT) -> ItemsT:
        """Return the split with its states; one rank of each machine fills the cache."""
        return self._ranks.in_turn(lambda: self._add(task, split))

    def _add(self, task: str, split: ItemsT) -> ItemsT:
        if self._model is None or not isinstance(split, Encoded):
            return split
        if IDS not in split.ragged or FROZEN_STATES in split.ragged:
            return split
        return self._with_states(task, split, self._model.encoder.width)

    def _key(self, task: str, split: Encoded) -> str:
        assert self._model is not None
        sequences = split.sequences if split.sequences is not None else np.empty(0)
        inputs = [split.ragged[IDS], split.offsets, sequences, *split.per_sequence.values()]
        number = self._model.task_id(task) if self._model.frozen.by_task else ""
        settings = f"{FORMAT} {self._batch} {self._device.type} {self._function} {number}"
        return _hash(settings, inputs)

    @torch.inference_mode()
    def _exact(self, task: str, split: Encoded) -> bool:
        # Compare the longest and the shortest item: they differ if the layers hand on more than
        # the states, or see the padding.
        model = self._model
        assert model is not None
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
            tokens = model.encode(batch).tokens
        assert tokens is not None
        return bool(torch.isclose(tokens[mask], expected[mask], rtol=1e-3, atol=1e-4).all())

    def _states(self, batch: Batch) -> torch.Tensor:
        model = self._model
        assert model is not None
        model.eval()
        with model.frozen.alone(), model.frozen.recording() as outputs:
            model.encode(batch)
        return outputs[0].float()


class WordStates(_StatesCache):
    """Caches the states of a frozen encoder that a BiLSTM's word vectors are mixed from."""

    folder = "words"
    dtype = np.float16

    def __init__(self, encoder: BiLSTMEncoder, **options: Any) -> None:
        super().__init__(**options)
        self._encoder = encoder
        weights = (_bytes(tensor) for tensor in encoder.words.state_dict().values())
        self._function = _digest(str(encoder.words.config).encode(), *weights)

    def add(self, task: str, split: Encoded) -> Encoded:
        return self._with_states(task, split, self._encoder.state_width)

    def _key(self, task: str, split: Encoded) -> str:
        inputs = [split.offsets, *(split.ragged[name] for name in sorted(split.ragged))]
        return _hash(f"{FORMAT} {self._batch} {self._device.type} {self._function}", inputs)

    def _states(self, batch: Batch) -> torch.Tensor:
        return self._encoder.to(self._device).states(batch.inputs)


def with_word_states(
    prepared: Sequence[Prepared],
    model: nn.Module,
    config: RunConfig,
    cache: Path | None,
    watchers: Watchers,
) -> list[Prepared]:
    """Return the tasks with the word states of a BiLSTM; other models need none."""
    encoder = model.encoder if isinstance(model, MultiTaskModel) else None
    if not isinstance(encoder, BiLSTMEncoder):
        return list(prepared)
    states = WordStates(
        encoder,
        batch=config.evaluate.batch,
        device=pick_device(config.device),
        cache=cache,
        working=watchers.working,
    )
    return [
        replace(
            entry,
            train=states.add(entry.task.name, entry.train),
            dev=replace(entry.dev, items=states.add(entry.task.name, entry.dev.items)),
        )
        for entry in prepared
    ]


def _function(model: MultiTaskModel) -> str:
    """Return a hash of the frozen layers: their weights and a transformers model's settings."""
    settings = str(getattr(getattr(model.encoder, "model", None), "config", None))
    return _digest(settings.encode(), *(_bytes(tensor) for tensor in model.frozen.state()))


def _hash(settings: str, inputs: Sequence[NDArray[Any]]) -> str:
    return _digest(settings.encode(), *(np.ascontiguousarray(array).tobytes() for array in inputs))


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(blake2b(part, digest_size=16).digest())
    return digest.hexdigest()
