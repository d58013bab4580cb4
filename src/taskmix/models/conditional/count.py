"""How many parameters a conditioned encoder has, and who they are for."""

from dataclasses import dataclass

from torch import nn

from taskmix.models.conditional.encoder import ConditionalEncoder


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters of a conditioned encoder, all and trained.

    Heads are not counted. `str` of it is a table.

    Args:
        tasks: how many tasks it has.
        encoder: parameters of the pretrained encoder, without its pooler.
        encoder_trained: those of them that are trained.
        shared: parameters of the conditional modules, which all tasks share.
        shared_trained: those of them that are trained.
        embeddings: parameters of the task embeddings.
        embeddings_trained: those of them that are trained.
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
        """All parameters."""
        return self.encoder + self.shared + self.embeddings

    @property
    def trained(self) -> int:
        """All trained parameters."""
        return self.encoder_trained + self.shared_trained + self.embeddings_trained

    @property
    def ratio(self) -> float:
        """All parameters over the encoder's: `Total params` in the paper's Table 2."""
        return self.total / self.encoder

    @property
    def trained_per_task(self) -> float:
        """Trained parameters a task, over the encoder's: `Trained params/task` in Table 2."""
        return self.trained / self.tasks / self.encoder

    def __str__(self) -> str:
        rows = [
            ("encoder", self.encoder, self.encoder_trained),
            ("conditional modules, shared", self.shared, self.shared_trained),
            (f"task embeddings, {self.tasks} tasks", self.embeddings, self.embeddings_trained),
            ("total", self.total, self.trained),
            ("total a task", self.total / self.tasks, self.trained / self.tasks),
        ]
        lines = [f"{'':<30}{'parameters':>14}{'of encoder':>12}{'trained':>14}{'of encoder':>12}"]
        lines += [
            f"{name:<30}{count:>14,.0f}{count / self.encoder:>11.3f}x"
            f"{trained:>14,.0f}{trained / self.encoder:>11.3f}x"
            for name, count, trained in rows
        ]
        return "\n".join(lines)


def count_parameters(conditioned: ConditionalEncoder) -> ParameterCount:
    """Count the parameters of a conditioned encoder; one on the meta device will do.

    >>> import torch
    >>> from transformers import BertConfig, BertModel
    >>> from taskmix.models.conditional import condition
    >>> with torch.device("meta"):
    ...     encoder = condition(BertModel(BertConfig()), [f"task-{n}" for n in range(8)])
    >>> print(count_parameters(encoder))
                                      parameters  of encoder       trained  of encoder
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
    sizes = [(p.numel(), p.requires_grad) for p in module.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)
