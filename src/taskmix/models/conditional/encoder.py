"""The conditioned encoder."""

from collections import deque
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from taskmix.models.conditional.modules import (
    ConditionalLayer,
    DiagonalAlignment,
    MatrixAlignment,
    TaskEmbeddings,
    random_row,
)
from taskmix.models.frozen import layer_stack
from taskmix.models.spec import ConditionalSpec


class ConditionalEncoder(nn.Module):
    """A pretrained encoder whose function depends on the task of each sequence.

    CA-MTL of Pilault, El hattami and Pal (2021), section 2.1. A batch may hold sequences of
    several tasks: conditioning is a look-up of each sequence's task embedding, and all sequences
    pass together. `condition` makes one.

    Args:
        encoder: the pretrained encoder; it becomes part of this module.
        task_embeddings: the table of task embeddings.
        alignment: between the encoder's embeddings and its first layer.
        conditions: the conditional modules of each layer.
        spec: the options that it was made with.
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
        self._stack = layer_stack(encoder)
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
        ids = [self.task_embeddings.index(task) for task in tasks]
        return torch.tensor(ids, device=self.task_embeddings.row(self.tasks[0]).device)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        task_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        output_hidden_states: bool = False,
    ) -> BaseModelOutput:
        """Encode sequences, each for its own task.

        Args:
            input_ids: shape `(sequences, tokens)`.
            attention_mask: 1 at tokens, shape `(sequences, tokens)`; None if everywhere.
            task_ids: indices in `tasks`, shape `(sequences,)`.
            token_type_ids: 1 in the second text of a pair, shape `(sequences, tokens)`.
            position_ids: shape `(sequences, tokens)`; the encoder's own if None.
            output_hidden_states: return also the input of each layer.

        Returns:
            `last_hidden_state`, shape `(sequences, tokens, width)`, and `hidden_states`.
        """
        codes = self.task_embeddings(task_ids)
        embedded = self._embedded(input_ids, token_type_ids, position_ids)
        outputs = self._layers(self._aligned(embedded, codes), attention_mask, codes)
        # Where only the last states are wanted, the others are freed on the way.
        states: Any = deque(outputs, maxlen=None if output_hidden_states else 1)
        return BaseModelOutput(
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
        )

    @torch.no_grad()
    def entering(
        self, input_ids: Tensor, task_ids: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the embeddings before and after alignment, each `(sequences, tokens, width)`.

        The arguments are those of `forward`; without an alignment both outputs are the same.
        """
        codes = self.task_embeddings(task_ids)
        embedded = self._embedded(input_ids, token_type_ids, None)
        return embedded, self._aligned(embedded, codes)

    def _aligned(self, hidden: Tensor, codes: Tensor) -> Tensor:
        return hidden if self.alignment is None else self.alignment(hidden, codes)

    def _embedded(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        embeddings, *projection = self.embedding_modules()
        hidden: Tensor = embeddings(
            input_ids=input_ids, token_type_ids=token_type_ids, position_ids=position_ids
        )
        for module in projection:
            hidden = module(hidden)
        return hidden

    def _layers(
        self, hidden: Tensor, attention_mask: Tensor | None, codes: Tensor
    ) -> Iterator[Tensor]:
        """Yield the input of each layer, and the output of the last."""
        mask = _bool_mask(attention_mask)
        # Section 2.1.4: f_j = f_{j-1} + Bottleneck_j(z, h_j + f_{j-1}), f_0 = 0, and the encoder
        # gives h + f of the last layer. The paper's code has no f_{j-1} in front and no h at the
        # end: its output forgets the encoder's, and here a zero start would stop all gradients.
        side: Tensor | None = None
        pairs = self.layers()
        yield hidden
        for number, (layer, condition) in enumerate(pairs, 1):
            hidden = condition(hidden, layer, mask, codes)
            if condition.side is not None:
                side = _add(side, condition.side(_add(side, hidden), codes))
            yield _add(side, hidden) if number == len(pairs) else hidden

    def embedding_modules(self) -> list[nn.Module]:
        """Return the encoder's embeddings, and their projection if it has one, as ELECTRA has."""
        names = ("embeddings", "embeddings_project")
        return [getattr(self.encoder, name) for name in names if hasattr(self.encoder, name)]

    def layers(self) -> list[tuple[Any, ConditionalLayer]]:
        """Return the encoder's layers, each with its conditional modules, the lowest first."""
        conditions = [layer for layer in self.conditions if isinstance(layer, ConditionalLayer)]
        return list(zip(self._stack, conditions, strict=True))

    @property
    def has_side_stream(self) -> bool:
        """Whether bottlenecks beside the layers make a side stream."""
        return any(condition.side for _, condition in self.layers())

    def add_task(self, task: str, row: Tensor | str | None = None, seed: int = 0) -> nn.Parameter:
        """Add a task; the others' outputs keep every bit.

        An existing optimiser does not know the new parameter: add it there. To train the new task
        alone, freeze the rest: `encoder.requires_grad_(False)`, then `row.requires_grad_(True)`.

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
            width, start = self.task_embeddings.width, self.spec.embedding_start
            row = random_row(task, width, seed, start)
        self.task_embeddings.append(task, row)
        return self.task_embeddings.row(task)

    def fold(self, task: str) -> PreTrainedModel:
        """Return a plain transformers encoder with this encoder's function for one task.

        In evaluation mode it is the same function, up to rounding: a diagonal alignment is folded
        into the embeddings' last linear step, conditional norms become plain ones, and the
        bottleneck of the base layout, which is linear, is folded into the last layer's feed-forward
        part. Dropout in training would apply at other places, so use the result for inference or
        for a new training. Attention biases, an alignment matrix and a side stream have no place in
        a plain encoder and raise an error; `only` keeps them and folds the rest.
        """
        from taskmix.models.conditional.folding import fold

        return fold(self, task)

    def only(self, task: str) -> "ConditionalEncoder":
        """Return a conditioned encoder for one task, with every part folded that `fold` can fold.

        The other parts keep their generators, so that the result can be trained; it has one task,
        whose id is 0.
        """
        from taskmix.models.conditional.folding import only

        return only(self, task)

    def save_pretrained(self, folder: str | PathLike[str]) -> None:
        """Write the encoder into a folder.

        The pretrained part is in `config.json` and `model.safetensors`, as transformers writes it;
        the rest in `conditional.json` (tasks and options) and `conditional.safetensors`.
        """
        from taskmix.models.conditional.saving import save

        save(self, Path(folder))

    @classmethod
    def from_pretrained(cls, folder: str | PathLike[str]) -> "ConditionalEncoder":
        """Load an encoder in evaluation mode; no code of the folder runs."""
        from taskmix.models.conditional.saving import load

        return load(Path(folder))


def _bool_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Return the mask in the shape of attention scores; None if it masks nothing."""
    if attention_mask is None or bool(attention_mask.all()):
        return None
    return attention_mask.bool()[:, None, None, :]


def _add(side: Tensor | None, more: Tensor) -> Tensor:
    return more if side is None else side + more
