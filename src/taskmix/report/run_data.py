"""The run folder that a report is about."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from taskmix.config import Objective, label, read_value
from taskmix.errors import UserError, explain
from taskmix.report.history import History, read_history
from taskmix.studies.compare import is_diverged
from taskmix.training.folder import JOURNAL, RUN, SCORES, Finished, Scores, finished
from taskmix.training.objective import kept_evaluation


@dataclass(frozen=True)
class RunData:
    """A run folder, finished or not.

    Args:
        path: of the folder.
        history: its journal.
        config: its run file as text; empty if there is none.
        finished: whether the budget is spent; other training loops write no scores, and count as
            finished unless their budget says that steps are missing.
        result: the final scores, else those of the model kept so far; None before any evaluation.
        diverged: whether its loss became infinite or NaN, in a comparison.
    """

    path: Path
    history: History
    config: str
    finished: bool
    result: Finished | None
    diverged: bool = False

    @property
    def objective(self) -> Objective | None:
        """The objective that the run file names, or the journal of another loop, if any."""
        opening = self.history.opening
        if not self.config and opening.measure == "loss":
            return Objective(tasks=tuple(opening.tasks), measure="loss")
        named = _settings(self.path, self.config).get("objective")
        try:
            return None if named is None else Objective.model_validate(named)
        except ValidationError as error:
            where = f"{self.path / RUN}: objective"
            raise UserError(explain(error, Objective, where)) from None

    @property
    def policy(self) -> str:
        """The name of the decider, with its options unless the user named it."""
        decider = self.history.opening.decider
        return label(decider) if "name" in decider else "unknown policy"


def read_run(path: Path) -> RunData:
    """Read a run folder."""
    run = path / RUN
    config = run.read_text(encoding="utf-8") if run.exists() else ""
    history = read_history(path / JOURNAL)
    if history.family.key == "policy" and history.units and not history.shares:
        raise UserError(f"{path / JOURNAL}: expected the distribution of its draws, found none")
    if (path / SCORES).exists():
        return RunData(path, history, config, True, _final_result(path, history))
    planned = history.opening.budget.get(history.family.unit, 0)
    hosted = not config and history.end >= planned
    result = _result_so_far(path, history, config)
    return RunData(path, history, config, hosted, result, is_diverged(path))


def _final_result(path: Path, history: History) -> Finished:
    result = finished(path)
    if set(result.tasks) != set(history.tasks):
        raise UserError(
            f"{path / SCORES}: expected the tasks of its journal, {history.tasks}, "
            f"found {list(result.tasks)}"
        )
    return result


def _result_so_far(path: Path, history: History, config: str) -> Finished | None:
    if not history.evaluations:
        return None
    settings = _settings(path, config).get("evaluate")
    keep = settings.get("keep", "best") if isinstance(settings, dict) else "best"
    kept, last = kept_evaluation(history.evaluations, keep), history.evaluations[-1]
    tasks = {
        task: Scores(score, kept.metrics.get(task, {}), kept.losses[task], examples=0)
        for task, score in kept.scores.items()
    }
    return Finished(kept.step, kept.score, tasks, last.forward, last.backward, kept.objective)


def _settings(path: Path, config: str) -> dict[str, Any]:
    settings = read_value(config, str(path / RUN)) if config else None
    return settings if isinstance(settings, dict) else {}
