"""What the journal keeps of a draw."""

from collections.abc import Mapping
from dataclasses import dataclass

from taskmix.policies.base import Draw, Outcome
from taskmix.records import UnitRecord


@dataclass(frozen=True, slots=True)
class Step(UnitRecord):
    """One draw and its outcome.

    Args:
        step: the number of the draw.
        task: the task drawn.
        p: the propensity of the draw.
        loss: and the other signals of its outcome; None if not measured.
        gain: by how much the step lowered the loss on its batch.
        score: a dev score.
        uncertainty: by task.
        examples: in the batch.
        tokens: in the batch, padding left out.
        seconds: how long the step took.
        dev_losses: by task.
        alignment: of the batch's gradient with the mean dev gradient.
        gradient: the length of the batch's gradient, where the alignment was measured.
        skill: how far the task's dev score is above guessing.
    """

    kind = "step"
    task: str
    p: float
    loss: float | None = None
    gain: float | None = None
    score: float | None = None
    uncertainty: dict[str, float] | None = None
    examples: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    dev_losses: dict[str, float] | None = None
    alignment: float | None = None
    gradient: float | None = None
    skill: float | None = None

    def outcome(self, draw: Draw) -> Outcome:
        """Return what the policy was told of this draw."""
        return Outcome(
            draw,
            self.loss,
            self.gain,
            self.score,
            self.uncertainty,
            self.tokens,
            self.dev_losses,
            self.alignment,
            self.gradient,
            self.skill,
        )

    def shares(self) -> Mapping[str, float]:
        """Return 1 for the task drawn."""
        return {self.task: 1.0}

    def training_losses(self) -> Mapping[str, float]:
        """Return the loss of the task drawn."""
        return {} if self.loss is None else {self.task: self.loss}

    def examples_of(self) -> Mapping[str, int]:
        """Return the size of the batch."""
        return {} if self.examples is None else {self.task: self.examples}
