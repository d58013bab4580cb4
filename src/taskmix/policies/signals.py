"""What a policy can ask to have measured, each with its price.

A policy lists its signals in `needs`; the trainer measures those and nothing else. `due` narrows
them down to the coming outcome, for signals that are too dear to be measured at every step.
"""

from dataclasses import dataclass
from typing import Literal

Score = Literal["bald", "batch_bald", "entropy", "legacy"]
"""What can be measured of a model's uncertainty."""


@dataclass(frozen=True)
class Signal:
    """A measurement with a price."""


@dataclass(frozen=True)
class Loss(Signal):
    """The training loss of the batch: free."""


@dataclass(frozen=True)
class Gain(Signal):
    """The fall of the loss on the same batch through the step: one extra forward pass."""


@dataclass(frozen=True)
class DevScore(Signal):
    """The dev score of one task after the step: an evaluation of that task.

    Args:
        task: whose dev set is evaluated.
        examples: how many of its dev examples are used, the same ones each time; all if None.
    """

    task: str
    examples: int | None = None


@dataclass(frozen=True)
class Skill(Signal):
    """What the model has learned of the drawn task, by its dev score: an evaluation of that task.

    It is (score - g) / (1 - g), where g is the score of predicting without looking: 0 for a model
    that only knows which answer is the most frequent, 1 for one that is always right. Where nobody
    knows g, as with metrics of a user's own, it is not measured.

    Args:
        examples: how many of the task's dev examples are used, the same ones each time; all if
            None.
    """

    examples: int | None = None


@dataclass(frozen=True)
class DevLosses(Signal):
    """The dev losses of several tasks after the step: a forward pass over their dev examples.

    Args:
        tasks: whose dev sets are evaluated; all tasks' if None.
        examples: how many dev examples of each are used, the same ones each time; all if None.
    """

    tasks: tuple[str, ...] | None = None
    examples: int | None = None


@dataclass(frozen=True)
class Alignment(Signal):
    """How far the batch's gradient points where the dev losses fall.

    It is the inner product of the batch's gradient with the mean of the tasks' dev gradients, each
    clipped as the run clips its own, at the weights before the step: a forward and a backward pass
    over the dev examples.

    Args:
        tasks: whose dev gradients are meant; all tasks' if None.
        examples: how many dev examples of each are used, the same ones each time; all if None.
    """

    tasks: tuple[str, ...] | None = None
    examples: int | None = None


@dataclass(frozen=True)
class Uncertainty(Signal):
    """The model's uncertainty on each task: Monte-Carlo dropout passes over the dev sets.

    Args:
        passes: dropout masks, each shared by all examples of a pass.
        examples: how many dev examples of each task are used, the same ones each time; all if None.
        score: `bald` is the mean mutual information of single examples, `batch_bald` the joint
            one over small groups, `entropy` the predictive entropy, `legacy` the score that the
            authors' code computed.
    """

    passes: int = 8
    examples: int | None = None
    score: Score = "bald"
