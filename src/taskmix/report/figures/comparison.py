"""Figures of a comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.config import Objective
from taskmix.journal import Evaluation
from taskmix.report.document import Caption
from taskmix.report.figures.deciders import share_areas
from taskmix.report.figures.run import MAX_MARKED
from taskmix.report.history import History
from taskmix.report.style import (
    GRID,
    NEUTRAL,
    Look,
    band,
    contestant_looks,
    curve,
    numbers,
    panels,
    plotly,
    safe,
    shortened,
)
from taskmix.report.timeline import Floats, influence, max_points, thinned
from taskmix.studies.paired import LOSSES, SCORES, Difference, Unit, interval_words, p_words

DIFFERENCES = (
    "A dot is the mean difference to the baseline, its line the 95% interval; a filled dot in the "
    "first row is significant. Single tasks are not tested: where nothing differs, one interval in "
    "twenty misses zero."
)
ROW_PIXELS = 28
CONTESTANT_PIXELS = 14
DOTS_SPREAD = 0.6
"""The part of a row over which the contestants' dots are spread."""

DifferenceRow = tuple[str, Mapping[str, Difference]]
"""A task, or the measure that contestants are judged by, with the differences by contestant."""


def bands_caption(objective: Objective | None, seeds: int) -> Caption:
    """Return the caption of the curves of contestants with at most so many seeds."""
    values = "The mean over the tasks" if objective is None else "The objective"
    bands = (
        ": a line is the mean of the seeds, its band reaches from the lowest seed to the highest"
    )
    measure = "score" if objective is None else objective.measure
    return Caption(f"Dev {measure} over the budget", f"{values}{bands if seeds > 1 else ''}.")


def shares_caption(family: str = "policy") -> Caption:
    """Return the caption of the shares of contestants of a family, or of several."""
    share = "the probability with which its task was drawn"
    if family != "policy":
        share = "the share of its task: of the draws, the chosen examples or the weights"
    return Caption("Shares over the run", f"The height of a colour is {share}; means over seeds.")


def score_bands(runs: Mapping[str, Sequence[History]], unit: Unit = SCORES) -> Any:
    """Draw the objective, or the mean dev score: the mean of the seeds, and their range.

    Runs whose budgets count different units are drawn over the part of the budget that is spent.

    Args:
        runs: by decider, the histories of its seeds. A point is drawn where all of them have one.
        unit: of the values.
    """
    figure = panels()
    units = {run.unit for histories in runs.values() for run in histories}
    counts = {run.opening.count for histories in runs.values() for run in histories}
    alike = len(units) <= 1 and counts <= {"steps"}
    for (name, look), histories in zip(contestant_looks(runs).items(), runs.values(), strict=True):
        steps, scores = common_scores(histories, unit)
        if counts - {"steps"}:
            places, scores = scores_in_turn(histories, unit)
        else:
            places = steps if alike else 100 * steps / max(run.length for run in histories)
        if len(places):
            shown = unit.factor * scores
            mode = "lines+markers" if len(places) <= MAX_MARKED else "lines"
            figure.add_traces(band(name, look, places, shown.min(axis=0), shown.max(axis=0)))
            middle = shown.mean(axis=0)
            figure.add_trace(curve(name, look, places, middle, line=look.line(2.5), mode=mode))
    end = max((run.end for histories in runs.values() for run in histories), default=0)
    title = "".join(units) if alike else "part of the budget, %"
    figure.update_xaxes(title_text=title, range=[0, 1.02 * (end if alike else 100)])
    title = "objective, loss" if unit is LOSSES else "dev score, of 100"
    figure.update_yaxes(title_text=title, hoverformat=f".{unit.digits}f")
    figure.update_layout(height=440)
    return figure


def common_scores(histories: Sequence[History], unit: Unit = SCORES) -> tuple[Floats, Floats]:
    """Return the steps at which all runs were evaluated, and the scores, shape `(runs, steps)`."""
    runs = [
        {record.step: _judged(record, unit) for record in history.evaluations}
        for history in histories
    ]
    steps = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    shown = [steps[k] for k in thinned(len(steps))]
    scores = np.array([[run[step] for step in shown] for run in runs], dtype=np.float64)
    return np.array(shown, dtype=np.float64), scores


def scores_in_turn(histories: Sequence[History], unit: Unit = SCORES) -> tuple[Floats, Floats]:
    """Return where runs were evaluated for the k-th time, in % of their budgets, and the scores."""
    turns = min((len(run.evaluations) for run in histories), default=0)
    if not turns:
        return np.empty(0), np.empty((0, 0))
    shown = thinned(turns)
    places = [[100 * run.part(run.evaluations[k]) for k in shown] for run in histories]
    scores = [[_judged(run.evaluations[k], unit) for k in shown] for run in histories]
    return np.array(places).mean(axis=0), np.array(scores, dtype=np.float64)


def _judged(record: Evaluation, unit: Unit) -> float:
    """Return the objective; the mean score where the run names none."""
    if record.objective is not None:
        return record.objective
    return np.nan if unit is LOSSES else record.score


def share_panels(runs: Mapping[str, Sequence[History]]) -> dict[str, Any]:
    """Return a small figure for each contestant: the shares of the tasks, means over its seeds."""
    drawn = {}
    for name, histories in runs.items():
        timelines = [timeline for run in histories if (timeline := influence(run)) is not None]
        if not timelines:
            continue
        tasks = histories[0].tasks
        bins = max_points(len(tasks) * len(runs), most=100)
        binned = [timeline.binned(bins) for timeline in timelines]
        edges = np.linspace(0, 100, bins + 1)
        means = np.mean([means for _, means in binned], axis=0)
        figure = panels(tasks=len(tasks))
        figure.add_traces(share_areas(tasks, edges, np.vstack([means, means[-1]])))
        figure.update_xaxes(title_text="part of the run, %", range=[0, 100], tickvals=[0, 50, 100])
        figure.update_yaxes(range=[0, 1], tickformat=".0%", hoverformat=".1%")
        figure.update_layout(height=230)
        drawn[name] = figure
    return drawn


def differences(
    rows: Sequence[DifferenceRow], contestants: Sequence[str], baseline: str, unit: Unit = SCORES
) -> Any:
    """Draw a dot for each mean difference, a line for its interval; filled where significant.

    Args:
        rows: the first is the measure that contestants are judged by, and the only one tested.
        contestants: all of them, which have their colours by this order.
        baseline: the contestant that zero stands for.
        unit: of the differences.
    """
    go, _ = plotly()
    figure = panels()
    styles, names = contestant_looks(contestants), list(rows[0][1])
    half = DOTS_SPREAD / 2 if len(names) > 1 else 0.0
    for name, offset in zip(names, np.linspace(-half, half, len(names)).tolist(), strict=True):
        by_row = [by_contestant[name] for _, by_contestant in rows]
        figure.add_trace(go.Scatter(**_dots(name, styles[name], by_row, offset, unit)))
    figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1})
    first, *others = (shortened(name) for name, _ in rows)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[f"<b>{first}</b>", *others],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
    )
    figure.update_xaxes(title_text=f"{unit.words} {unit.better} {safe(baseline)}", showgrid=True)
    for row in range(1, len(rows)):
        figure.add_hline(row - 0.5, line={"color": GRID, "width": 1})
    height = 120 + len(rows) * (ROW_PIXELS + CONTESTANT_PIXELS * (len(names) - 1))
    figure.update_layout(hovermode="closest", height=height)
    return figure


def _dots(
    name: str, look: Look, by_row: Sequence[Difference], offset: float, unit: Unit
) -> dict[str, Any]:
    scale = abs(unit.factor)
    symbols = ["circle" if by_row[0].significant else "circle-open"]
    symbols += ["circle-open"] * (len(by_row) - 1)
    outline = {"color": look.colour, "width": 2}
    return {
        "x": numbers([scale * difference.mean for difference in by_row]),
        "y": [row + offset for row in range(len(by_row))],
        "name": safe(name),
        "legendgroup": look.group,
        "showlegend": False,
        "mode": "markers",
        "marker": {"color": look.colour, "size": 9, "symbol": symbols, "line": outline},
        "error_x": {
            "symmetric": False,
            "array": [scale * _distance(each.mean, each.high) for each in by_row],
            "arrayminus": [scale * _distance(each.mean, each.low) for each in by_row],
            "color": look.colour,
            "thickness": 2,
            "width": 0,  # caps would stand inside a dot that has no interval
        },
        "text": [_hover(each, unit) for each in by_row],
        "hovertemplate": f"%{{text}}<extra>{safe(name)}</extra>",
    }


def _hover(difference: Difference, unit: Unit) -> str:
    p = "" if difference.p is None else f", p {p_words(difference)}"
    return f"{interval_words(difference, unit)}{p}"


def _distance(mean: float, end: float | None) -> float:
    return 0.0 if end is None else abs(end - mean)
