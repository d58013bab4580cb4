"""A conditioned encoder as the shared encoder of a multi-task model."""

from collections.abc import Iterator, Mapping
from itertools import chain, takewhile

from torch import Tensor, nn

from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.encoders import PooledEncoder, Representation
from taskmix.models.frozen import Frozen
from taskmix.models.multitask import TASK_IDS
from taskmix.models.spec import Pooling


class ConditionedTextEncoder(PooledEncoder):
    """A conditioned encoder with pooling; it has the tasks of the multi-task model, in order."""

    model: ConditionalEncoder

    def __init__(self, model: ConditionalEncoder, pooling: Pooling) -> None:
        super().__init__(model, pooling)

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        output = self.model(
            inputs["input_ids"],
            inputs["attention_mask"],
            inputs[TASK_IDS],
            self._token_types(inputs),
        )
        return self._represent(output.last_hidden_state, inputs)

    def frozen(self) -> Frozen:
        return _FixedLayers(self.model)

    def fresh(self) -> list[nn.Parameter]:
        pretrained = {id(parameter) for parameter in self.model.encoder.parameters()}
        return [p for p in self.model.parameters() if id(p) not in pretrained]


class _FixedLayers(Frozen):
    """The layers of a conditioned encoder below every module that training changes."""

    def __init__(self, model: ConditionalEncoder) -> None:
        pretrained = {id(p) for p in model.encoder.parameters()}
        changing = {id(p) for p in model.parameters() if p.requires_grad}
        if any(p.requires_grad for p in model.task_embeddings.parameters()):
            # A conditional module changes with the task embeddings that it reads.
            changing |= {id(p) for p in model.parameters()} - pretrained

        def is_fixed(module: nn.Module) -> bool:
            return changing.isdisjoint(id(p) for p in module.parameters())

        below = [*model.embedding_modules(), *([model.alignment] if model.alignment else [])]
        fixed: list[tuple[nn.Module, nn.Module]] = []
        # The states of a side stream are no layer's output, so it leaves no layer to replace.
        if not model.has_side_stream and all(map(is_fixed, below)):
            fixed += takewhile(lambda pair: all(map(is_fixed, pair)), model.layers())
        # A layer is called through the module that conditions it.
        self._layers = list(model.conditions)[: len(fixed)]
        self._above = list(model.conditions)[len(fixed) :] if fixed else []
        modules = chain(below, *fixed) if fixed else []
        self._modules = [m for module in modules for m in module.modules()]
        self._without_dropout = Frozen(model.encoder)._modules
        self._task_embeddings = model.task_embeddings
        parameters = (p for module in self._modules for p in module.parameters())
        self._by_task = any(id(p) not in pretrained for p in parameters)

    @property
    def by_task(self) -> bool:
        return self._by_task

    def state(self) -> Iterator[Tensor]:
        yield from super().state()
        if self._by_task:
            yield self._task_embeddings.table()
