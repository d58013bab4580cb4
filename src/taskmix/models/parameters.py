"""Numbers of parameters: of a conditioned encoder, and of a run file's model without loading it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.build import build_conditional
from taskmix.models.causal import small_causal_config, with_trained_part
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.encoders import TextEncoder, quiet, small_config, text_config, without_pooler
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import pretrained_source
from taskmix.tables import Column, Row, Table


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """The numbers of all and of trained parameters of an encoder.

    Heads are not counted. `str` of it is a table.

    Args:
        tasks: how many tasks it has.
        encoder, encoder_trained: of the pretrained encoder, without its pooler.
        shared, shared_trained: of the conditional modules, which all tasks share.
        embeddings, embeddings_trained: of the task embeddings.
    """

    tasks: int
    encoder: int
    encoder_trained: int
    shared: int
    shared_trained: int
    embeddings: int
    embeddings_trained: int

    @property
    def total(self) -> int:
        """The number of all parameters."""
        return self.encoder + self.shared + self.embeddings

    @property
    def trained(self) -> int:
        """The number of all trained parameters."""
        return self.encoder_trained + self.shared_trained + self.embeddings_trained

    @property
    def ratio(self) -> float:
        """All parameters over the encoder's: `Total params` in the paper's Table 2."""
        return self.total / self.encoder

    @property
    def trained_per_task(self) -> float:
        """Trained parameters a task, over the encoder's: `Trained params/task` in Table 2."""
        return self.trained / self.tasks / self.encoder

    def table(self) -> Table:
        """Return the parameters by part of the model, all and trained."""
        count, ratio = ",.0f", "{:.3f}x".format
        columns = [
            Column("part"),
            Column("parameters", count),
            Column("of encoder", ratio),
            Column("trained", count),
            Column("of encoder", ratio),
        ]
        parts = [
            ("encoder", self.encoder, self.encoder_trained),
            ("conditional modules, shared", self.shared, self.shared_trained),
            (f"task embeddings, {self.tasks} tasks", self.embeddings, self.embeddings_trained),
            ("total", self.total, self.trained),
            ("total a task", self.total / self.tasks, self.trained / self.tasks),
        ]
        rows: list[Row] = [
            [name, total, total / self.encoder, trained, trained / self.encoder]
            for name, total, trained in parts
        ]
        return Table(columns, rows, totals=2)

    def __str__(self) -> str:
        return str(self.table())


def count_parameters(conditioned: ConditionalEncoder) -> ParameterCount:
    """Count the parameters of a conditioned encoder; one on the meta device will do.

    >>> import torch
    >>> from transformers import BertConfig, BertModel
    >>> from taskmix.models.conditional import condition
    >>> with torch.device("meta"):
    ...     encoder = condition(BertModel(BertConfig()), [f"task-{n}" for n in range(8)])
    >>> print(count_parameters(encoder))
    part                              parameters  of encoder       trained  of encoder
    encoder                          108,891,648      1.000x    42,527,232      0.391x
    conditional modules, shared        2,043,904      0.019x     2,043,904      0.019x
    task embeddings, 8 tasks               6,144      0.000x         6,144      0.000x
    total                            110,941,696      1.019x    44,577,280      0.409x
    total a task                      13,867,712      0.127x     5,572,160      0.051x
    """
    conditional = [*conditioned.conditions]
    if conditioned.alignment is not None:
        conditional.append(conditioned.alignment)
    return ParameterCount(
        len(conditioned.tasks),
        *_sizes(conditioned.encoder),
        *_sizes(nn.ModuleList(conditional)),
        *_sizes(conditioned.task_embeddings),
    )


def _sizes(module: nn.Module) -> tuple[int, int]:
    """Return the number of parameters, and of those that are trained."""
    sizes = [(p.numel(), p.requires_grad) for p in module.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)


def parameters_of(spec: ModelSpec, tasks: Sequence[str]) -> ParameterCount:
    """Count the parameters of a run file's text encoder, plain or conditioned, without its heads.

    Only the configuration is loaded. The vocabulary of `small` is counted at its largest size.
    """
    if spec.encoder in ("cnn", "lenet") or ":" in (spec.encoder or ""):
        raise UserError(f"model.encoder: expected a text encoder to count, found {spec.encoder!r}")
    with torch.device("meta"):
        if spec.causal:
            model = _from_config(spec, AutoModelForCausalLM, small_causal_config)
            counted: nn.Module = with_trained_part(model, spec)
        else:
            plain = without_pooler(_from_config(spec, AutoModel, small_config))
            if spec.conditional is not None:
                return count_parameters(build_conditional(plain, tasks, spec.conditional))
            counted = TextEncoder(plain, spec.pooling, spec.freeze).model
    return ParameterCount(len(tasks), *_sizes(counted), 0, 0, 0, 0)


def _from_config(spec: ModelSpec, auto: Any, small: Any) -> PreTrainedModel:
    source = pretrained_source(spec)
    config: PreTrainedConfig = (
        small(spec, spec.vocabulary) if source is None else text_config(source, spec)
    )
    with quiet():
        model: PreTrainedModel = auto.from_config(config, trust_remote_code=False)
    return model
