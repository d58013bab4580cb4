"""What the journal keeps of a selector's step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from taskmix.records import UnitRecord, normalised


@dataclass(frozen=True, slots=True)
class SelectionStep(UnitRecord):
    """What a selector did at a step.

    Args:
        step: which step.
        candidates: by task, how many were scored for it.
        chosen: by task, how many examples were trained on.
        used: the share of all training examples that have been used at least once.
        losses: by task, the mean loss of the chosen examples.
        tokens: in the batch, padding left out.
        seconds: how long the step took.
    """

    kind = "selection"
    candidates: dict[str, int]
    chosen: dict[str, int]
    used: float
    losses: dict[str, float] = field(default_factory=dict)
    tokens: int | None = None
    seconds: float | None = None

    def shares(self) -> Mapping[str, float]:
        """Return each task's share of the chosen examples."""
        return normalised(self.chosen)

    def training_losses(self) -> Mapping[str, float]:
        """Return the losses."""
        return self.losses

    def examples_of(self) -> Mapping[str, int]:
        """Return the numbers of chosen examples."""
        return self.chosen
