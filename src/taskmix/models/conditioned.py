"""A conditioned encoder as the shared encoder of a multi-task model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.encoders import Encoder, Representation
from taskmix.models.exported import pool
from taskmix.models.frozen import FrozenPart
from taskmix.models.multitask import TASK_IDS
from taskmix.models.spec import Pooling
from taskmix.tasks.encoding import SECOND, SEGMENTS


class ConditionedTextEncoder(Encoder):
    """A conditioned encoder with pooling; each sequence is encoded for its own task.

    Args:
        model: the conditioned encoder, whose tasks are those of the multi-task model, in order.
        pooling: as `TextEncoder` has it.
    """

    def __init__(self, model: ConditionalEncoder, pooling: Pooling) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.width = int(model.config.hidden_size)
        self._segments = int(getattr(model.config, "type_vocab_size", 0) or 0) > 1
        self._fixed = FixedPart(model)

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Token vectors and their pool."""
        mask = inputs["attention_mask"]
        segments = inputs.get(SEGMENTS) if self._segments else None
        tokens = self._fixed.run(inputs["input_ids"], mask, inputs[TASK_IDS], segments)
        return Representation(pool(tokens, mask, inputs.get(SECOND), self.pooling), tokens)

    @property
    def pooled_width(self) -> int:
        """How many numbers stand for a sequence."""
        return self.width * (4 if self.pooling == "pair" else 1)

    def frozen(self) -> FrozenPart:
        """Return what lies below the lowest module that training changes."""
        self._fixed.look()
        return self._fixed

    def fresh(self) -> list[nn.Parameter]:
        """Return the parameters of the conditional modules and the task embeddings."""
        pretrained = {id(parameter) for parameter in self.model.encoder.parameters()}
        return [p for p in self.model.parameters() if id(p) not in pretrained]


class FixedPart(FrozenPart):
    """The layers of a conditioned encoder below everything that training changes.

    Args:
        model: the conditioned encoder.
    """

    def __init__(self, model: ConditionalEncoder) -> None:
        self._model = model
        self._given: Tensor | None = None
        self._records: list[Tensor] | None = None
        self._alone = False
        self._count = 0

    def look(self) -> None:
        """Look again which layers are fixed: after something was frozen or thawed."""
        self._count = self._model.fixed_layers

    def run(
        self, input_ids: Tensor, mask: Tensor, task_ids: Tensor, second: Tensor | None
    ) -> Tensor:
        """Return token vectors, shape `(sequences, tokens, width)`, from given states if any."""
        states = self._given
        if self._records is not None:
            if states is None:
                states = self._model.fixed_states(input_ids, mask, task_ids, second)
            self._records.append(states)
        if states is not None and self._alone:
            return states
        tokens: Tensor = self._model(
            input_ids, mask, task_ids, second, fixed=states
        ).last_hidden_state
        return tokens

    def __len__(self) -> int:
        """How many layers are fixed."""
        return self._count

    def still(self) -> None:
        """Nothing: the conditioned encoder itself turns off the dropout of its fixed layers."""

    def state(self) -> Iterator[Tensor]:
        """All tensors that its function depends on, and those of the tasks that it depends on."""
        for module in self._model.fixed_modules():
            yield from module.parameters()
            yield from module.buffers()
        if self.by_task:
            yield self._model.task_embeddings.table()

    @property
    def by_task(self) -> bool:
        """Whether what it gives depends on the task."""
        return self._model.fixed_by_task

    @contextmanager
    def recording(self) -> Iterator[list[Tensor]]:
        """Collects what the last fixed layer gives, call by call."""
        outputs: list[Tensor] = []
        self._records = outputs if self._count else None
        try:
            yield outputs
        finally:
            self._records = None

    @contextmanager
    def given(self, output: Tensor | None) -> Iterator[None]:
        """Inside it, training starts from this output; None changes nothing."""
        before = self._given
        self._given = before if output is None else output
        try:
            yield
        finally:
            self._given = before

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside it, the layers above are not run where the fixed ones are recorded."""
        self._alone = True
        try:
            yield
        finally:
            self._alone = False
