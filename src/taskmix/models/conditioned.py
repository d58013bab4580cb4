"""A conditioned encoder as the shared encoder of a multi-task model."""

from collections.abc import Iterator, Mapping

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
        # A layer is called through the module that conditions it. The states of a side stream are
        # no layer's output, so that an encoder with one has no part that could be left out.
        count = 0 if model.has_side_stream else model.fixed_layers
        conditions = list(model.conditions) if count else []
        self._layers, self._above = conditions[:count], conditions[count:]
        fixed = model.fixed_modules() if count else []
        self._modules = [part for module in fixed for part in module.modules()]
        self._by_task = model.fixed_by_task
        self._task_embeddings = model.task_embeddings

    @property
    def by_task(self) -> bool:
        return self._by_task

    def state(self) -> Iterator[Tensor]:
        yield from super().state()
        if self._by_task:
            yield self._task_embeddings.table()
