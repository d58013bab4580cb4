"""What the journal keeps of a round."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from taskmix.records import UnitRecord, normalised


@dataclass(frozen=True, slots=True)
class Round(UnitRecord):
    """One round of a weighting.

    Args:
        step: which round.
        norms: by task, the length of its delta.
        alphas: by task, its α.
        weights: by task, its weight after the round.
        dev_loss: the target's dev loss where the round ended.
        losses: by task, the mean training loss.
        seconds: how long the round took.
    """

    kind = "round"
    norms: dict[str, float]
    alphas: dict[str, float]
    weights: dict[str, float]
    dev_loss: float
    losses: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None

    def shares(self) -> Mapping[str, float]:
        """Return the normalised weights."""
        return normalised(self.weights)

    def training_losses(self) -> Mapping[str, float]:
        """Return the losses."""
        return self.losses

    def examples_of(self) -> Mapping[str, int]:
        """Return nothing: a round counts in shares of the data."""
        return {}
