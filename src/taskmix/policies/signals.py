"""The signals that a policy can request, and the outcome of a draw, which has their values."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from taskmix.policies.state import Array
from taskmix.uncertainty.measure import UncertaintyScore


@dataclass(frozen=True)
class Signal:
    """Base class of the measurements that a policy can request, each at a cost.

    A policy lists its signals in `needs`, and the trainer measures no others. For signals that are
    too expensive to be measured at every step, `due` returns those of a single draw.
    """

    #: The field of `Outcome` that every measurement of the signal has.
    measurement: ClassVar[str] = ""


@dataclass(frozen=True)
class Loss(Signal):
    """The training loss of the batch: free."""

    measurement = "loss"


@dataclass(frozen=True)
class BatchScore(Signal):
    """The score of the batch before the step, from the forward pass of the training: free.

    In the first epoch of a task a batch is new to the model, so its score estimates the dev score
    at that moment, apart from the effect of dropout (prequential evaluation; Dawid 1984). It is not
    measured in later epochs, with several ranks, or for kinds whose score needs the text of their
    rows (tagging, spans, choices, generation).
    """


@dataclass(frozen=True)
class Gain(Signal):
    """The decrease of the loss on the same batch through the step: one extra forward pass."""

    measurement = "gain"


@dataclass(frozen=True)
class DevScore(Signal):
    """The dev score of one task after the step: an evaluation of that task.

    Args:
        task: the task.
        examples: the number of dev examples, the same ones every time; all if None.
    """

    measurement = "score"
    task: str
    examples: int | None = None


@dataclass(frozen=True)
class Rewards(Signal):
    """The rewards of the completions that were generated for a draw: free where there are any.

    It brings four measurements. A group is the completions of one prompt.

    - `reward`: the mean reward of the completions.
    - `spread`: the mean over the groups of the standard deviation of the rewards.
    - `mute`: the share of groups whose rewards are all equal, which have no gradient.
    - `advantage`: the mean absolute advantage of the completions.
    """

    measurement = "reward"


@dataclass(frozen=True)
class DevLosses(Signal):
    """The dev losses of several tasks after the step: a forward pass over their dev examples.

    Args:
        tasks: the tasks; all if None.
        examples: the number of dev examples of each, the same ones every time; all if None.
    """

    measurement = "dev_losses"
    tasks: tuple[str, ...] | None = None
    examples: int | None = None


@dataclass(frozen=True)
class Alignment(Signal):
    """The inner product of the batch's gradient with the mean dev gradient of several tasks.

    The gradients are those before the step, each clipped as in the run: a forward and a backward
    pass over the dev examples.

    Args:
        tasks: the tasks; all if None.
        examples: the number of dev examples of each, the same ones every time; all if None.
    """

    measurement = "alignment"
    tasks: tuple[str, ...] | None = None
    examples: int | None = None


@dataclass(frozen=True)
class Uncertainty(Signal):
    """The model's uncertainty on each task: Monte-Carlo dropout passes over the dev sets.

    Args:
        passes: the number of dropout masks; all examples of a pass share a mask.
        examples: the number of dev examples of each task, the same ones every time; all if None.
        score: `bald`, the mean mutual information of single examples; `batch_bald`, the joint one
            of small groups; `entropy`, the predictive entropy; or `legacy`, the score in the code
            of Fang and Alqatari (2020).
    """

    measurement = "uncertainty"
    passes: int = 8
    examples: int | None = None
    score: UncertaintyScore = "bald"


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One decision: the task drawn, and the distribution that it was drawn from.

    A policy holds no reference to its draws, so a draw can be saved and restored.

    Args:
        task: the name of the task.
        index: its index in `policy.tasks`.
        probabilities: the distribution of the draw, shape `(tasks,)`, read-only.
        number: the number of the draw; the first draw of a policy has the number 1.
    """

    task: str
    index: int
    probabilities: Array
    number: int

    @property
    def probability(self) -> float:
        """The propensity: the probability with which this task was drawn."""
        return float(self.probabilities[self.index])


@dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of a draw, which `Outcome` documents; None where nothing was measured."""

    loss: float | None = None
    gain: float | None = None
    score: float | None = None
    uncertainty: Mapping[str, float] | None = None
    examples: int | None = None
    tokens: int | None = None
    dev_losses: Mapping[str, float] | None = None
    alignment: float | None = None
    gradient: float | None = None
    reward: float | None = None
    spread: float | None = None
    mute: float | None = None
    advantage: float | None = None
    batch_score: float | None = None

    def measured(self) -> dict[str, Any]:
        """Return the measurements that are not None, as JSON-able values."""
        return {
            name: dict(value) if isinstance(value, Mapping) else value
            for name in MEASURED
            if (value := getattr(self, name)) is not None
        }


MEASURED = tuple(field.name for field in fields(Measured))


@dataclass(frozen=True, slots=True, eq=False)
class _OfDraw:
    """The first argument of an outcome, before the measurements."""

    draw: Draw


@dataclass(frozen=True, slots=True, eq=False)
class Outcome(Measured, _OfDraw):
    """The measurements of a draw. A signal that was not measured is None.

    Args:
        draw: the draw.
        loss: the mean negative log-likelihood of the batch before the step.
        gain: the decrease of the loss on the same batch through the step.
        score: the dev score, after the step, of the task that the policy's `DevScore` names.
        uncertainty: the model's uncertainty on each task.
        examples: the number of examples in the batch.
        tokens: the number of tokens in the batch without padding; 0 without text. In reinforcement
            learning, those that were generated.
        dev_losses: the dev loss of each task after the step.
        alignment: the inner product of the batch's gradient with the mean dev gradient.
        gradient: the norm of the batch's gradient after clipping; measured with the alignment.
        reward: the mean reward of the completions; see `Rewards` for this and the following.
        spread: the mean standard deviation of the rewards within a group.
        mute: the share of groups whose rewards are all equal.
        advantage: the mean absolute advantage.
        batch_score: the score of the batch before the step; see `BatchScore`.

    >>> import numpy as np
    >>> draw = Draw("rte", 0, np.array([0.25, 0.75]), number=1)
    >>> Outcome(draw, loss=0.7, examples=16).measured()
    {'loss': 0.7, 'examples': 16}
    """
