"""Dev scores of several deciders."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.journal import Evaluation
from taskmix.report.curves import Floats, thinned
from taskmix.report.history import History
from taskmix.report.style import Look, looks, panels, plotly, safe
from taskmix.studies.paired import LOSSES, SCORES, Unit


def score_bands(runs: Mapping[str, Sequence[History]], unit: Unit = SCORES) -> Any:
    """The mean dev score over the budget: a line for the mean of the seeds, a band for their range.

    Where the runs are for a loss, it is that loss.

    Where some runs count steps and others rounds, or none of both, they are drawn over parts of
    their budgets.

    Args:
        runs: by decider, the histories of its seeds. A point is drawn where all of them have one.
        unit: of what they are judged by.
    """
    figure = panels()
    units = {run.unit for histories in runs.values() for run in histories}
    counts = {run.opening.count for histories in runs.values() for run in histories}
    alike = len(units) <= 1 and counts <= {"steps"}
    for (name, look), histories in zip(looks(runs).items(), runs.values(), strict=True):
        steps, scores = common_scores(histories, unit)
        if counts - {"steps"}:
            places, scores = scores_in_turn(histories, unit)
        else:
            places = steps if alike else 100 * steps / max(run.length for run in histories)
        if len(places):
            figure.add_traces(_band(name, look, places, unit.factor * scores))
    end = max((run.end for histories in runs.values() for run in histories), default=0)
    title = "".join(units) if alike else "part of the budget, %"
    figure.update_xaxes(title_text=title, range=[0, 1.02 * (end if alike else 100)])
    title = "objective, loss" if unit is LOSSES else "mean dev score, of 100"
    figure.update_yaxes(title_text=title, hoverformat=f".{unit.digits}f")
    figure.update_layout(height=440)
    return figure


def common_scores(histories: Sequence[History], unit: Unit = SCORES) -> tuple[Floats, Floats]:
    """Return the steps at which all runs were scored, and the scores, shape `(runs, steps)`."""
    tables = [
        {record.step: _judged(record, unit) for record in history.evaluations}
        for history in histories
    ]
    steps = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    shown = [steps[k] for k in thinned(len(steps))]
    scores = np.array([[table[step] for step in shown] for table in tables], dtype=np.float64)
    return np.array(shown, dtype=np.float64), scores


def scores_in_turn(histories: Sequence[History], unit: Unit = SCORES) -> tuple[Floats, Floats]:
    """Return where runs were scored for the k-th time, in % of their budgets, and the scores.

    Runs that are scored at parts of their budgets come there at different steps.
    """
    turns = min((len(run.evaluations) for run in histories), default=0)
    if not turns:
        return np.empty(0), np.empty((0, 0))
    shown = thinned(turns)
    places = [[100 * run.part(run.evaluations[k]) for k in shown] for run in histories]
    scores = [[_judged(run.evaluations[k], unit) for k in shown] for run in histories]
    return np.array(places).mean(axis=0), np.array(scores, dtype=np.float64)


def _judged(record: Evaluation, unit: Unit) -> float:
    """Return the mean score, or the objective where that is a loss, with its sign turned."""
    if unit is not LOSSES:
        return record.score
    return np.nan if record.objective is None else record.objective


def _band(name: str, look: Look, steps: Floats, scores: Floats) -> list[Any]:
    go, _ = plotly()
    common = {"x": steps, "legendgroup": name}
    edge = {"mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    low = go.Scatter(y=scores.min(axis=0), name=f"{safe(name)}, lowest", **edge, **common)
    high = go.Scatter(
        y=scores.max(axis=0),
        name=f"{safe(name)}, highest",
        fill="tonexty",
        fillcolor=look.faint(0.2),
        **edge,
        **common,
    )
    mean = go.Scatter(
        y=scores.mean(axis=0),
        name=safe(name),
        mode="lines",
        line={"color": look.colour, "dash": look.dash, "width": 2.5},
        **common,
    )
    return [low, high, mean]
