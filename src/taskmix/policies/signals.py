"""The signals that a policy can request."""

from dataclasses import dataclass

from taskmix.uncertainty.measure import UncertaintyScore


@dataclass(frozen=True)
class Signal:
    """Base class of the measurements that a policy can request, each at a cost.

    A policy lists its signals in `needs`, and the trainer measures no others. For signals that are
    too expensive to be measured at every step, `due` returns those of a single draw.
    """


@dataclass(frozen=True)
class Loss(Signal):
    """The training loss of the batch: free."""


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


@dataclass(frozen=True)
class DevScore(Signal):
    """The dev score of one task after the step: an evaluation of that task.

    Args:
        task: the task.
        examples: the number of dev examples, the same ones every time; all if None.
    """

    task: str
    examples: int | None = None


@dataclass(frozen=True)
class Skill(Signal):
    """The dev score of the drawn task relative to a baseline: an evaluation of that task.

    The skill is (score - b) / (1 - b), where b is the score of the majority-class baseline: 0 for a
    model that always predicts the most frequent label, 1 for one that is always right. It is not
    measured if b is unknown, as for custom metrics.

    Args:
        examples: the number of dev examples, the same ones every time; all if None.
    """

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


@dataclass(frozen=True)
class DevLosses(Signal):
    """The dev losses of several tasks after the step: a forward pass over their dev examples.

    Args:
        tasks: the tasks; all if None.
        examples: the number of dev examples of each, the same ones every time; all if None.
    """

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

    passes: int = 8
    examples: int | None = None
    score: UncertaintyScore = "bald"
