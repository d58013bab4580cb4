"""The conditioned encoder."""

from collections import deque
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from taskmix.errors import UserError
from taskmix.models.conditional.alignment import DiagonalAlignment, MatrixAlignment
from taskmix.models.conditional.embeddings import TaskEmbeddings, random_row
from taskmix.models.conditional.families import layers_of
from taskmix.models.conditional.layer import ConditionalLayer
from taskmix.models.conditional.spec import ConditionalSpec


class ConditionalEncoder(nn.Module):
    """A pretrained encoder whose function depends on the task of each sequence.

    CA-MTL of Pilault, El hattami and Pal (2021), section 2.1. A batch may hold sequences of
    several tasks: conditioning is a look-up of each sequence's task embedding, and all sequences
    pass together. `condition` makes one.

    Args:
        encoder: the pretrained encoder; it becomes part of this module.
        task_embeddings: the table of task embeddings.
        alignment: what stands behind the encoder's embeddings.
        conditions: what conditions each layer.
        spec: what it was made from.
    """

    def __init__(
        self,
        encoder: PreTrainedModel,
        task_embeddings: TaskEmbeddings,
        alignment: DiagonalAlignment | MatrixAlignment | None,
        conditions: Sequence[ConditionalLayer],
        spec: ConditionalSpec,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.task_embeddings = task_embeddings
        self.alignment = alignment
        self.conditions = nn.ModuleList(conditions)
        self.spec = spec

    @property
    def config(self) -> PreTrainedConfig:
        """The configuration of the pretrained encoder."""
        return self.encoder.config

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, in the order of their ids."""
        return self.task_embeddings.tasks

    def ids(self, tasks: Sequence[str]) -> Tensor:
        """Return the ids of named tasks, one a sequence, shape `(sequences,)`."""
        places = [self.task_embeddings.index(task) for task in tasks]
        return torch.tensor(places, device=self.task_embeddings.row(self.tasks[0]).device)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        task_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        fixed: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> BaseModelOutput:
        """Encode sequences, each for its own task.

        Args:
            input_ids: shape `(sequences, tokens)`.
            attention_mask: 1 where there is a token, shape `(sequences, tokens)`; None if
                everywhere.
            task_ids: places in `tasks`, shape `(sequences,)`.
            token_type_ids: 1 in the second text of a pair, shape `(sequences, tokens)`.
            position_ids: shape `(sequences, tokens)`; the encoder's own if None.
            fixed: what `fixed_states` gave for this batch; the fixed layers are not run then.
            output_hidden_states: return also what enters each layer and leaves the last.

        Returns:
            `last_hidden_state`, shape `(sequences, tokens, width)`, and `hidden_states`.
        """
        codes = self.task_embeddings(task_ids)
        first = 0 if fixed is None else self.fixed_layers
        hidden = fixed
        if hidden is None:
            hidden = self._embed(input_ids, token_type_ids, position_ids, codes)
        # Where only the last states are asked for, the others are let go on the way.
        running = self._layers(hidden, attention_mask, codes, first)
        states: Any = deque(running, maxlen=None if output_hidden_states else 1)
        return BaseModelOutput(
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
        )

    def fixed_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        task_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Return what the lowest `fixed_layers` layers give, to be kept and passed as `fixed`.

        Args:
            input_ids: shape `(sequences, tokens)`.
            attention_mask: as in `forward`.
            task_ids: places in `tasks`, shape `(sequences,)`.
            token_type_ids: as in `forward`.
            position_ids: as in `forward`.
        """
        count = self.fixed_layers
        if not count:
            raise UserError("fixed_states: expected fixed layers, found none in this encoder")
        codes = self.task_embeddings(task_ids)
        with torch.no_grad():
            hidden = self._embed(input_ids, token_type_ids, position_ids, codes)
            *_, hidden = self._layers(hidden, attention_mask, codes, 0, count)
        return hidden

    @torch.no_grad()
    def entering(
        self, input_ids: Tensor, task_ids: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return what the embeddings give, and what of it enters the first layer: aligned.

        Args:
            input_ids: shape `(sequences, tokens)`.
            task_ids: places in `tasks`, shape `(sequences,)`.
            token_type_ids: as in `forward`.

        Returns:
            Both of shape `(sequences, tokens, width)`; the same where there is no alignment.
        """
        codes = self.task_embeddings(task_ids)
        embedded = self._embedded(input_ids, token_type_ids, None)
        return embedded, self._aligned(embedded, codes)

    def _embed(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        codes: Tensor,
    ) -> Tensor:
        """Return what enters the first layer."""
        return self._aligned(self._embedded(input_ids, token_type_ids, position_ids), codes)

    def _aligned(self, hidden: Tensor, codes: Tensor) -> Tensor:
        return hidden if self.alignment is None else self.alignment(hidden, codes)

    def _embedded(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        encoder: Any = self.encoder
        hidden: Tensor = encoder.embeddings(
            input_ids=input_ids, token_type_ids=token_type_ids, position_ids=position_ids
        )
        if hasattr(encoder, "embeddings_project"):
            hidden = encoder.embeddings_project(hidden)
        return hidden

    def _layers(
        self,
        hidden: Tensor,
        attention_mask: Tensor | None,
        codes: Tensor,
        first: int,
        end: int | None = None,
    ) -> Iterator[Tensor]:
        """Yield what enters layer `first`, each layer up to `end`, and leaves the last of them."""
        mask = _bool_mask(attention_mask)
        # Section 2.1.4: f_j = f_{j-1} + Bottleneck_j(z, h_j + f_{j-1}), f_0 = 0, and the encoder
        # gives h + f of the last layer. The paper's code has no f_{j-1} in front and no h at the
        # end: its output forgets the encoder's, and here a zero start would stop all gradients.
        side: Tensor | None = None
        pairs = self.layers()[first:end]
        yield hidden
        for number, (layer, condition) in enumerate(pairs, 1):
            hidden = condition(layer, hidden, mask, codes)
            if condition.side is not None:
                side = _onward(side, condition.side(_onward(side, hidden), codes))
            yield _onward(side, hidden) if number == len(pairs) else hidden

    def layers(self) -> list[tuple[Any, ConditionalLayer]]:
        """Return the encoder's layers, each with what conditions it, the lowest first."""
        conditions = [layer for layer in self.conditions if isinstance(layer, ConditionalLayer)]
        return list(zip(layers_of(self.encoder), conditions, strict=True))

    @property
    def fixed_layers(self) -> int:
        """How many of the lowest layers are a fixed function of the inputs and the task.

        What they give can be kept for an example and need not be computed again. Alignment behind
        the embeddings, attention biases and side streams leave no layer fixed as long as they or
        the task embeddings train.
        """
        lowest = self.lowest_trained
        if lowest is not None and any(condition.side for _, condition in self.layers()):
            return 0
        names = [name for name, _ in self._in_order()]
        below = names if lowest is None else names[: names.index(lowest)]
        return sum(name.startswith("encoder.encoder.layer.") for name in below)

    @property
    def fixed_by_task(self) -> bool:
        """Whether what the fixed layers give depends on the task."""
        added = {id(p) for p in self.parameters()} - {id(p) for p in self.encoder.parameters()}
        return any(id(p) in added for module in self.fixed_modules() for p in module.parameters())

    def fixed_modules(self) -> list[nn.Module]:
        """Return the modules up to the last fixed layer, in the order of running."""
        count = self.fixed_layers
        if not count:
            return []
        found = []
        for name, module in self._in_order():
            found.append(module)
            if name == f"encoder.encoder.layer.{count - 1}":
                break
        return found

    @property
    def lowest_trained(self) -> str | None:
        """The name of the first module, in the order of running, that training changes.

        A conditional module is changed also by training a task's embedding. None if nothing is
        trained.
        """
        moving = _trains(self.task_embeddings)
        for name, module in self._in_order():
            conditional = not name.startswith("encoder.") and any(True for _ in module.parameters())
            if _trains(module) or (moving and conditional):
                return name
        return None

    def _in_order(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the modules by name, in the order of running: a layer behind what changes it."""
        encoder: Any = self.encoder
        yield "encoder.embeddings", encoder.embeddings
        if hasattr(encoder, "embeddings_project"):
            yield "encoder.embeddings_project", encoder.embeddings_project
        if self.alignment is not None:
            yield "alignment", self.alignment
        for number, (layer, condition) in enumerate(self.layers()):
            yield f"conditions.{number}", condition
            yield f"encoder.encoder.layer.{number}", layer

    def train(self, mode: bool = True) -> Self:
        """Turn dropout on or off, but in the layers that are fixed."""
        super().train(mode)
        for module in self.fixed_modules():
            module.eval()
        return self

    def add_task(self, task: str, row: Tensor | str | None = None, seed: int = 0) -> nn.Parameter:
        """Add a task; the others' outputs keep every bit.

        An optimiser that exists has to be told of the new parameter. To train the new task alone,
        freeze the rest: `encoder.requires_grad_(False)` and then `row.requires_grad_(True)`.

        Args:
            task: its name.
            row: the task whose embedding it starts from, the embedding itself, shape `(width,)`,
                or None for a random one.
            seed: of the random one, with the task's name.

        Returns:
            The new row of the table.
        """
        if isinstance(row, str):
            row = self.task_embeddings.row(row)
        elif row is None:
            row = random_row(task, self.task_embeddings.width, seed)
        self.task_embeddings.append(task, row)
        return self.task_embeddings.row(task)

    def fold(self, task: str) -> PreTrainedModel:
        """Return a plain transformers encoder with this encoder's function for one task.

        See `taskmix.models.conditional.folding.fold`.
        """
        from taskmix.models.conditional.folding import fold

        return fold(self, task)

    def only(self, task: str) -> "ConditionalEncoder":
        """Return a conditioned encoder for one task, with all that can be folded folded.

        See `taskmix.models.conditional.folding.only`.
        """
        from taskmix.models.conditional.folding import only

        return only(self, task)

    def save_pretrained(self, folder: str | PathLike[str]) -> None:
        """Write the encoder into a folder; see `taskmix.models.conditional.folder.save`."""
        from taskmix.models.conditional.folder import save

        save(self, Path(folder))

    @classmethod
    def from_pretrained(cls, folder: str | PathLike[str]) -> "ConditionalEncoder":
        """Return the encoder of a folder, in evaluation mode; no code of the folder runs."""
        from taskmix.models.conditional.folder import load

        return load(Path(folder))


def _bool_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Return the mask in the shape of attention scores; None if it masks nothing."""
    if attention_mask is None or bool(attention_mask.all()):
        return None
    return attention_mask.bool()[:, None, None, :]


def _onward(side: Tensor | None, more: Tensor) -> Tensor:
    return more if side is None else side + more


def _trains(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())
