"""A run folder, as far as a report wants to know it."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from taskmix.config import Objective, read_value
from taskmix.errors import UserError
from taskmix.report.history import History, read_history
from taskmix.report.standing import Standing, standing
from taskmix.studies.compare import label
from taskmix.training.folder import JOURNAL, RUN


@dataclass(frozen=True)
class Folder:
    """A run folder, read.

    Args:
        path: where it is.
        history: its journal.
        standing: its scores; None before any.
        config: its run file as a text; empty if there is none.
    """

    path: Path
    history: History
    standing: Standing | None
    config: str

    @property
    def finished(self) -> bool:
        """Whether the budget is spent."""
        return self.standing is not None and self.standing.finished

    @property
    def objective(self) -> Objective | None:
        """What the run is for, if its run file says it."""
        said = read_value(self.config, str(self.path / RUN)) if self.config else None
        named = said.get("objective") if isinstance(said, dict) else None
        try:
            return None if named is None else Objective.model_validate(named)
        except ValidationError:
            raise UserError(
                f"{self.path / RUN}: objective: expected tasks and a measure, found {named!r:.60}"
            ) from None

    @property
    def policy(self) -> str:
        """The decider in words, or what the user calls it."""
        decider = self.history.opening.decider
        return label(decider) if "name" in decider else "unknown policy"


def read_folder(path: Path) -> Folder:
    """Read a run folder, finished or not."""
    history = read_history(path / JOURNAL)
    run = path / RUN
    config = run.read_text(encoding="utf-8") if run.exists() else ""
    return Folder(path, history, standing(path, history), config)
