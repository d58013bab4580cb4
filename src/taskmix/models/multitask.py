"""The multi-task model: one shared encoder and one head a task."""

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn

from taskmix.models.encoders import Encoder, Representation
from taskmix.models.exported import marked
from taskmix.models.frozen import Frozen
from taskmix.models.spec import ModelSpec
from taskmix.rng import seed_for
from taskmix.tasks.batches import FROZEN_STATES, Batch, TaskItems
from taskmix.tasks.kinds import Classify, Kind

TASK_IDS = "task_ids"
"""The input that holds the index of each row's task."""


class MultiTaskModel(nn.Module):
    """One shared encoder and one head a task.

    A batch of several tasks passes through the encoder once, and each head is applied to its own
    items. A head's initial weights depend on the seed and the task's name, not on the other tasks.
    Tasks that generate have no head: they share that of the language model which the encoder is.

    In training, dropout is off in the embeddings and layers whose own weights are not trained, and
    on elsewhere. Frozen layers without trained modules below them are then a fixed function, which
    does not run on a batch that holds its output. The rule is the same for a conditioned encoder,
    although conditional modules inside its frozen layers are trained: two models that differ only
    in their conditional parts have the same dropout. With the spec's `frozen_dropout`, dropout is
    on everywhere, as in the code of Pilault et al. (2021), and no output can be reused.

    Args:
        encoder: shared by all tasks.
        kinds: the kind of each task, by name.
        spec: describes the heads.
        seed: of the heads' initial weights.
    """

    def __init__(
        self, encoder: Encoder, kinds: Mapping[str, Kind], spec: ModelSpec, seed: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.frozen_dropout = spec.frozen_dropout
        self.find_frozen()
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
        encoded = self.encode(batch)
        return {part.task: self._logits(part, encoded) for part in batch}

    def encode(self, batch: Batch) -> Representation:
        """Return the encoder's output for all items of a batch."""
        with self.frozen.given(batch.inputs.get(FROZEN_STATES)):
            inputs = batch.inputs | {TASK_IDS: self._task_ids(batch)}
            encoded: Representation = self.encoder(inputs)
        return encoded

    def add_task(self, name: str, kind: Kind, spec: ModelSpec, seed: int) -> None:
        """Add a task with its head; the encoder has to know the task as its last one.

        Args:
            name: of the task.
            kind: of the task.
            spec: describes the head.
            seed: of its initial weights.
        """
        self.kinds[name] = kind
        self._ids[name] = len(self._ids)
        if kind.reads != "vocabulary":
            self.heads[key(name)] = _head(self.encoder, kind, spec, name, seed)

    def find_frozen(self) -> None:
        """Find the layers that are a fixed function; call it after a change of what is trained."""
        self.frozen = Frozen(nn.Module()) if self.frozen_dropout else self.encoder.frozen()

    def task_id(self, task: str) -> int:
        """Return the index of a task in the input `task_ids`."""
        return self._ids[task]

    def _task_ids(self, batch: Batch) -> Tensor:
        device = next(self.parameters()).device
        ids = torch.empty(batch.parts[-1].rows.stop, dtype=torch.int64, device=device)
        for part in batch:
            ids[part.rows] = self._ids[part.task]
        return ids

    def _logits(self, part: TaskItems, encoded: Representation) -> Tensor:
        if self.kinds[part.task].reads == "vocabulary":
            if encoded.vocabulary is None:
                raise TypeError(f"task {part.task} generates, but the encoder is no language model")
            return encoded.vocabulary[part.rows, : part.length]
        tokens = None if encoded.tokens is None else encoded.tokens[part.rows, : part.length]
        features = encoded.pooled[part.rows]
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
        super().train(mode)
        self.frozen.disable_dropout()
        return self


class LinearHead(nn.Module):
    """Dropout and one linear map."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.dropout(features))
        return logits


class TwoLayerHead(nn.Module):
    """Dropout, a hidden layer with ReLU, and a linear map: Kourdis et al. (2020), section 4.2."""

    def __init__(self, inputs: int, outputs: int, dropout: float, hidden: int = 256) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(inputs, hidden)
        self.linear = nn.Linear(hidden, outputs)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.hidden(self.dropout(features)).relu())
        return logits


def key(task: str) -> str:
    """Return a task's name as a module's name: no dot, and no attribute of modules, as `train`."""
    name = task.replace("%", "%25").replace(".", "%2E")
    return f"%{ord(name[0]):02X}{name[1:]}" if hasattr(nn.ModuleDict(), name) else name


def _head(encoder: Encoder, kind: Kind, spec: ModelSpec, name: str, seed: int) -> nn.Module:
    marks = kind.marks if isinstance(kind, Classify) else 0
    pooled = encoder.pooled_width + encoder.width * marks
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "head", name))
        return kind.head(
            encoder.width if kind.reads == "tokens" else pooled,
            lambda inputs, outputs: _plain_head(spec, inputs, outputs),
        )


def _plain_head(spec: ModelSpec, inputs: int, outputs: int) -> nn.Module:
    if spec.head == "two_layer":
        return TwoLayerHead(inputs, outputs, spec.dropout, spec.head_width)
    return LinearHead(inputs, outputs, spec.dropout)
