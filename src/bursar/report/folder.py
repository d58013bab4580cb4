"""A run folder, as far as a report wants to know it."""

from dataclasses import dataclass
from pathlib import Path

from bursar.report.history import History, read_history
from bursar.report.standing import Standing, standing
from bursar.studies.compare import label
from bursar.training.folder import JOURNAL, RUN


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
    def policy(self) -> str:
        """The decider in words."""
        decider = self.history.opening.decider
        return label(decider) if "name" in decider else "unknown policy"


def read_folder(path: Path) -> Folder:
    """Read a run folder, finished or not."""
    history = read_history(path / JOURNAL)
    run = path / RUN
    config = run.read_text(encoding="utf-8") if run.exists() else ""
    return Folder(path, history, standing(path, history), config)
