"""What runs cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taskmix.journal import Evaluation, read_latest
from taskmix.records import UnitRecord
from taskmix.training.folder import JOURNAL

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

_KEYS = ("steps", "forward", "backward")


@dataclass(frozen=True)
class StageCost:
    """What one run or several cost.

    Args:
        steps: of the optimiser.
        forward: examples that passed forward through the model to train it or to decide.
        backward: examples that passed backward.
    """

    steps: int = 0
    forward: int = 0
    backward: int = 0

    @classmethod
    def on(cls, folder: Path) -> "StageCost":
        """Return what the run in a folder cost up to its latest evaluation.

        Args:
            folder: of a run, finished or not.
        """
        records = read_latest(folder / JOURNAL)
        steps = [record.step for record in records if isinstance(record, UnitRecord)]
        scored = [record for record in records if isinstance(record, Evaluation)]
        last = scored[-1] if scored else None
        return cls(
            steps[-1] if steps else 0, last.forward if last else 0, last.backward if last else 0
        )

    @classmethod
    def of(cls, trial: "FrozenTrial") -> "StageCost":
        """Return what was noted in a trial."""
        return cls(*(trial.user_attrs[key] for key in _KEYS))

    @classmethod
    def total(cls, parts: "Iterable[StageCost]") -> "StageCost":
        """Return the sum.

        >>> StageCost.total([StageCost(10, 160, 160), StageCost(5, 80, 80)])
        StageCost(steps=15, forward=240, backward=240)
        """
        each = list(parts)
        return cls(*(sum(getattr(part, key) for part in each) for key in _KEYS))

    def note(self, trial: "Trial") -> None:
        """Write it into a trial."""
        for key in _KEYS:
            trial.set_user_attr(key, getattr(self, key))
