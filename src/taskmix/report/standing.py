"""How a run stands: its scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from taskmix.errors import UserError
from taskmix.report.history import History
from taskmix.training.folder import SCORES, Finished, finished


@dataclass(frozen=True)
class Standing:
    """How a run stands: its scores at the step whose model is kept.

    Args:
        step: that step.
        score: the mean over the tasks.
        scores: by task.
        metrics: by task, each metric by name.
        baselines: by task, the score without looking, where it is known.
        forward: examples that have passed forward through the model in all.
        backward: examples that have passed backward.
        finished: whether the budget is spent.
        objective: the value of the run's objective, where it is known; higher is better.
        losses: by task.
    """

    step: int
    score: float
    scores: Mapping[str, float]
    metrics: Mapping[str, Mapping[str, float]]
    baselines: Mapping[str, float]
    forward: int
    backward: int
    finished: bool
    objective: float | None = None
    losses: Mapping[str, float] = field(default_factory=dict)


def standing(folder: Path, history: History) -> Standing | None:
    """Return the final scores of a finished run, the best so far of another, None before any."""
    if (folder / SCORES).exists():
        final = finished(folder)
        if set(final.tasks) != set(history.tasks):
            raise UserError(
                f"{folder / SCORES}: expected the tasks of its journal, {history.tasks}, "
                f"found {list(final.tasks)}"
            )
        return _final(final)
    if not history.evaluations:
        return None
    best = max(history.evaluations, key=lambda evaluation: evaluation.score)
    last = history.evaluations[-1]
    return Standing(
        best.step,
        best.score,
        best.scores,
        best.metrics,
        {},
        last.forward,
        last.backward,
        finished=False,
        objective=best.objective,
        losses=best.losses,
    )


def _final(run: Finished) -> Standing:
    baselines = {name: task.baseline for name, task in run.tasks.items()}
    return Standing(
        run.step,
        run.score,
        {name: task.score for name, task in run.tasks.items()},
        {name: task.metrics for name, task in run.tasks.items()},
        {name: score for name, score in baselines.items() if score is not None},
        run.forward,
        run.backward,
        finished=True,
        objective=run.objective,
        losses={name: task.loss for name, task in run.tasks.items()},
    )
