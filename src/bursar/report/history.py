"""A run's journal, sorted by kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bursar.errors import UserError
from bursar.journal import (
    Diagnostics,
    Evaluation,
    Opening,
    Round,
    SelectionStep,
    Shares,
    Step,
    read_latest,
)


@dataclass(frozen=True)
class History:
    """A run's journal, its records sorted by kind and in order."""

    opening: Opening
    shares: Sequence[Shares] = ()
    steps: Sequence[Step] = ()
    diagnostics: Sequence[Diagnostics] = ()
    selections: Sequence[SelectionStep] = ()
    rounds: Sequence[Round] = ()
    evaluations: Sequence[Evaluation] = ()

    @property
    def tasks(self) -> list[str]:
        """The task names, in order."""
        return self.opening.tasks

    @property
    def end(self) -> int:
        """The last step that left a record."""
        kinds = (self.steps, self.selections, self.rounds, self.evaluations)
        return max((kind[-1].step for kind in kinds if kind), default=0)

    @property
    def seconds(self) -> float:
        """How long steps and evaluations took."""
        kinds = (self.steps, self.selections, self.rounds, self.evaluations)
        return sum(record.seconds or 0.0 for kind in kinds for record in kind)


def read_history(path: Path) -> History:
    """The history in a journal file since its tasks last changed; evaluations on dev splits."""
    records = read_latest(path)
    if not records or not isinstance(records[0], Opening):
        raise UserError(f"{path}: expected a journal that opens with its run, found no such line")
    return History(
        records[0],
        shares=[record for record in records if isinstance(record, Shares)],
        steps=[record for record in records if isinstance(record, Step)],
        diagnostics=[record for record in records if isinstance(record, Diagnostics)],
        selections=[record for record in records if isinstance(record, SelectionStep)],
        rounds=[record for record in records if isinstance(record, Round)],
        evaluations=[r for r in records if isinstance(r, Evaluation) and r.split == "dev"],
    )
