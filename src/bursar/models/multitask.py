"""One shared encoder and one head a task."""

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn

from bursar.models.encoders import Encoder, Representation
from bursar.models.frozen import FROZEN_STATES, Frozen
from bursar.models.heads import LinearHead, TwoLayerHead
from bursar.models.spec import ModelSpec
from bursar.rng import seed_for
from bursar.tasks.kinds import Classify, Kind


class MultiTaskModel(nn.Module):
    """One shared encoder and one head a task.

    A head's first weights depend on the seed and the task's name, not on which other tasks there
    are. The encoder's frozen layers drop nothing out, and are not run on a batch that holds what
    they give.

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
        self.frozen = Frozen(encoder)
        self.kinds = dict(kinds)
        heads = {name: _head(encoder, kind, spec, name, seed) for name, kind in kinds.items()}
        # Module names may not hold dots, task names may.
        self.heads = nn.ModuleDict({key(name): head for name, head in heads.items()})

    def forward(self, task: str, inputs: Mapping[str, Tensor]) -> Tensor:
        """The task's logits for a batch's columns."""
        with self.frozen.given(inputs.get(FROZEN_STATES)):
            seen = self.encoder(inputs)
        return self.head(task, seen, inputs)

    def train(self, mode: bool = True) -> Self:
        """Turn dropout on or off, but in the frozen layers."""
        super().train(mode)
        self.frozen.still()
        return self

    def head(self, task: str, seen: Representation, inputs: Mapping[str, Tensor]) -> Tensor:
        """The task's logits for what the encoder made of a batch."""
        features = seen.pooled
        if self.kinds[task].reads == "tokens":
            if seen.tokens is None:
                raise TypeError(f"task {task} reads tokens, but the encoder gives none")
            features = seen.tokens
        elif "marks" in inputs and seen.tokens is not None:
            features = torch.cat([features, *_marked(seen.tokens, inputs["marks"])], dim=-1)
        logits: Tensor = self.heads[key(task)](features)
        return logits


def key(task: str) -> str:
    """A task's name as a module's name."""
    return task.replace("%", "%25").replace(".", "%2E")


def _marked(tokens: Tensor, marks: Tensor) -> list[Tensor]:
    """The mean vector of each marked piece, each of shape `(sequences, width)`."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    inside = (positions >= marks[..., :1]) & (positions < marks[..., 1:])
    weights = inside.to(tokens.dtype)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    return list((weights @ tokens).unbind(1))


def _head(encoder: Encoder, kind: Kind, spec: ModelSpec, name: str, seed: int) -> nn.Module:
    marks = kind.marks if isinstance(kind, Classify) else 0
    pooled = encoder.pooled_width + encoder.width * marks
    width = encoder.width if kind.reads == "tokens" else pooled
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "head", name))
        if spec.head == "two_layer":
            return TwoLayerHead(width, kind.width, spec.dropout, spec.head_width)
        return LinearHead(width, kind.width, spec.dropout)
