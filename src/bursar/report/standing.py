"""How a run stands: its scores."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bursar.report.history import History


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
    """

    step: int
    score: float
    scores: Mapping[str, float]
    metrics: Mapping[str, Mapping[str, float]]
    baselines: Mapping[str, float]
    forward: int
    backward: int
    finished: bool


def standing(folder: Path, history: History) -> Standing | None:
    """The final scores of a finished run, the best so far of another, None before any."""
    path = folder / "scores.json"
    if path.exists():
        return _final(path)
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
    )


def _final(path: Path) -> Standing:
    values = json.loads(path.read_text(encoding="utf-8"))
    tasks = values["tasks"]
    return Standing(
        values["step"],
        values["score"],
        {name: task["score"] for name, task in tasks.items()},
        {name: task["metrics"] for name, task in tasks.items()},
        {name: task["baseline"] for name, task in tasks.items() if "baseline" in task},
        values["forward"],
        values["backward"],
        finished=True,
    )
