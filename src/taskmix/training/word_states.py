"""A cache of the word vectors that a BiLSTM reads: a frozen encoder runs once on each split."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from taskmix.config import RunConfig
from taskmix.files import whole_file
from taskmix.models.bilstm import BiLSTMEncoder
from taskmix.models.multitask import MultiTaskModel
from taskmix.tasks.batches import FROZEN_STATES
from taskmix.tasks.cache import cache_folder
from taskmix.tasks.encoding import IDS, Encoded
from taskmix.training.engine import pick_device
from taskmix.training.frozen_states import ROOM, digest, tensor_bytes
from taskmix.training.loading import dev_batches
from taskmix.training.prepare import Prepared
from taskmix.training.watching import Watchers

FORMAT = 1
log = logging.getLogger(__name__)


def with_word_states(
    prepared: Sequence[Prepared],
    model: nn.Module,
    config: RunConfig,
    cache: Path | None,
    watchers: Watchers,
) -> list[Prepared]:
    """Return the tasks with the states that the model's frozen encoder gives for each token.

    Where the model's encoder is not a BiLSTM, nothing changes.

    Args:
        prepared: the tasks with their items.
        model: what learns.
        config: of the run.
        cache: the folder for what is computed once; the default one if None.
        watchers: are told of the work.
    """
    encoder = model.encoder if isinstance(model, MultiTaskModel) else None
    if not isinstance(encoder, BiLSTMEncoder):
        return list(prepared)
    states = WordStates(encoder, config, cache, watchers)
    return [
        replace(
            entry,
            train=states.add(entry.task.name, entry.train),
            dev=replace(entry.dev, items=states.add(entry.task.name, entry.dev.items)),
        )
        for entry in prepared
    ]


class WordStates:
    """Adds to splits the column of states that a BiLSTM's word vectors are mixed from.

    Args:
        encoder: whose frozen encoder it is.
        config: of the run.
        cache: the folder of the cache; `default_cache()` if None.
        watchers: are told of the work.
        room: bytes that the states of one split may take.
    """

    def __init__(
        self,
        encoder: BiLSTMEncoder,
        config: RunConfig,
        cache: Path | None,
        watchers: Watchers,
        room: int = ROOM,
    ) -> None:
        self._encoder = encoder
        self._device = pick_device(config.device)
        self._batch = config.evaluate.batch
        self._folder = cache_folder(cache, "words")
        self._watchers = watchers
        self._room = room
        weights = (tensor_bytes(tensor) for tensor in encoder.words.state_dict().values())
        self._function = digest(str(encoder.words.config).encode(), *weights)

    def add(self, task: str, split: Encoded) -> Encoded:
        """Return a split with its states: from the cache, or computed and put there.

        Args:
            task: whose split it is.
            split: encoded texts.
        """
        shape = (len(split.ragged[IDS]), self._encoder.state_width)
        if shape[0] * shape[1] * np.dtype(np.float16).itemsize > self._room:
            log.warning("%s: the frozen encoder runs each time: too many states to cache", task)
            return split
        path = self._folder / f"{self._key(split)}.npy"
        if not path.exists():
            with whole_file(path) as aside:
                states = np.lib.format.open_memmap(aside, mode="w+", dtype=np.float16, shape=shape)
                self._fill(states, task, split)
                states.flush()
        states = np.load(path, mmap_mode="r")
        return replace(split, ragged={**split.ragged, FROZEN_STATES: states})

    def _key(self, split: Encoded) -> str:
        """Return what names all that the states depend on: the encoder, and what it reads."""
        read = [split.offsets, *(split.ragged[name] for name in sorted(split.ragged))]
        parts = [np.ascontiguousarray(array).tobytes() for array in read]
        settings = f"{FORMAT} {self._batch} {self._device.type} {self._function}"
        return digest(settings.encode(), *parts)

    def _fill(self, states: np.ndarray, task: str, split: Encoded) -> None:
        encoder = self._encoder.to(self._device)
        done = 0
        for batch in dev_batches(task, split, self._batch, self._device):
            self._watchers.working(f"words of {task}: example {done} of {len(split)}")
            with torch.inference_mode():
                rows = encoder.states(batch.inputs).cpu().numpy()
            which, _ = split.sequences_of(batch.parts[0].items)
            for row, sequence in zip(rows, which, strict=True):
                start, end = split.offsets[sequence], split.offsets[sequence + 1]
                states[start:end] = row[: end - start]
            done += batch.examples
