"""One shared encoder and one head a task."""

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn

from taskmix.models.encoders import Encoder, Representation
from taskmix.models.exported import marked
from taskmix.models.heads import LinearHead, TwoLayerHead
from taskmix.models.spec import ModelSpec
from taskmix.rng import seed_for
from taskmix.tasks.batches import FROZEN_STATES, Batch, TaskItems
from taskmix.tasks.kinds import Classify, Kind

TASK_IDS = "task_ids"
"""The input that says which of the model's tasks each row is of."""


class MultiTaskModel(nn.Module):
    """One shared encoder and one head a task.

    A batch goes through the encoder in one pass, whatever tasks are in it, and each head is applied
    to its own items. A head's first weights depend on the seed and the task's name, not on which
    other tasks there are. Tasks that generate have no head: they share that of the language model
    which the encoder is. The encoder's frozen layers drop nothing out, and are not run on a batch
    that holds what they give.

    Args:
        encoder: what all tasks share.
        kinds: by task name, what its head has to give.
        spec: the kind of head.
        seed: of the heads' first weights.
    """

    def __init__(
        self, encoder: Encoder, kinds: Mapping[str, Kind], spec: ModelSpec, seed: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.frozen = encoder.frozen()
        self.kinds = dict(kinds)
        self._ids = {name: number for number, name in enumerate(kinds)}
        heads = {
            name: _head(encoder, kind, spec, name, seed)
            for name, kind in kinds.items()
            if kind.reads != "vocabulary"
        }
        # Module names may not hold dots, task names may.
        self.heads = nn.ModuleDict({key(name): head for name, head in heads.items()})

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the logits of each task in the batch."""
        seen = self.encode(batch)
        return {part.task: self._logits(part, seen) for part in batch}

    def encode(self, batch: Batch) -> Representation:
        """Return what the encoder makes of all items of a batch."""
        with self.frozen.given(batch.inputs.get(FROZEN_STATES)):
            seen: Representation = self.encoder(batch.inputs | {TASK_IDS: self._task_ids(batch)})
        return seen

    def add_task(self, name: str, kind: Kind, spec: ModelSpec, seed: int) -> None:
        """Add a task's head behind the others; the encoder has to know the task as its last.

        Args:
            name: of the task.
            kind: what its head has to give.
            spec: the kind of head.
            seed: of its first weights.
        """
        self.kinds[name] = kind
        self._ids[name] = len(self._ids)
        if kind.reads != "vocabulary":
            self.heads[key(name)] = _head(self.encoder, kind, spec, name, seed)

    def task_id(self, task: str) -> int:
        """Return the number by which encoders know a task."""
        return self._ids[task]

    def _task_ids(self, batch: Batch) -> Tensor:
        device = next(self.parameters()).device
        ids = torch.empty(batch.parts[-1].rows.stop, dtype=torch.int64, device=device)
        for part in batch:
            ids[part.rows] = self._ids[part.task]
        return ids

    def _logits(self, part: TaskItems, seen: Representation) -> Tensor:
        if self.kinds[part.task].reads == "vocabulary":
            if seen.vocabulary is None:
                raise TypeError(f"task {part.task} generates, but the encoder is no language model")
            return seen.vocabulary[part.rows, : part.length]
        tokens = None if seen.tokens is None else seen.tokens[part.rows, : part.length]
        features = seen.pooled[part.rows]
        if self.kinds[part.task].reads == "tokens":
            if tokens is None:
                raise TypeError(f"task {part.task} reads tokens, but the encoder gives none")
            features = tokens
        elif "marks" in part.columns and tokens is not None:
            pieces = marked(tokens, part.columns["marks"])
            features = torch.cat([features, pieces.flatten(1)], dim=-1)
        logits: Tensor = self.heads[key(part.task)](features)
        return logits

    def train(self, mode: bool = True) -> Self:
        """Turn dropout on or off, but in the frozen layers."""
        super().train(mode)
        self.frozen.still()
        return self


def key(task: str) -> str:
    """Return a task's name as a module's name."""
    return task.replace("%", "%25").replace(".", "%2E")


def _head(encoder: Encoder, kind: Kind, spec: ModelSpec, name: str, seed: int) -> nn.Module:
    marks = kind.marks if isinstance(kind, Classify) else 0
    pooled = encoder.pooled_width + encoder.width * marks
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "head", name))
        return kind.head(
            encoder.width if kind.reads == "tokens" else pooled,
            lambda inputs, outputs: _asked_head(spec, inputs, outputs),
        )


def _asked_head(spec: ModelSpec, inputs: int, outputs: int) -> nn.Module:
    """Make the head that a run file asks for."""
    if spec.head == "two_layer":
        return TwoLayerHead(inputs, outputs, spec.dropout, spec.head_width)
    return LinearHead(inputs, outputs, spec.dropout)
