"""Figures of one run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from taskmix.report.document import Caption
from taskmix.report.history import History
from taskmix.report.style import (
    MAX_HOVERED,
    NEUTRAL,
    SCALE,
    Look,
    curve,
    looks,
    numbers,
    panels,
    plotly,
    safe,
    shortened,
)
from taskmix.report.timeline import (
    Series,
    Timeline,
    dev_losses_of,
    dev_scores_of,
    influence,
    max_points,
    measurements,
    run_scores,
    smoothed,
    thinned,
    training_losses,
    uncertainties,
)
from taskmix.training.objective import kept_evaluation

DEV_SCORES = Caption(
    "Dev scores",
    "Higher is better. The thick grey line is the mean over the tasks; the dashed line marks the "
    "model that is kept.",
)
CONVERGENCE = Caption(
    "Convergence",
    "A star marks the lowest dev loss of a task: the closer the stars are to each other, the "
    "better one model serves all tasks. The strips show the share of each task.",
)
TRAINING_LOSS = Caption(
    "Training loss",
    "The loss of each task's own batches, smoothed over a twentieth of them; losses of different "
    "tasks are not on one scale.",
)
MAX_TICKS = 6
"""Steps or rounds up to which an axis has a tick for each; there are no halves."""
MAX_MARKED = 40
"""Points up to which a curve has a marker on each."""
MAX_RAW_TASKS = 4
"""Tasks up to which the losses of single batches are drawn; those of more tasks hide the rest."""


def step_axis(history: History) -> dict[str, Any]:
    """Return the range of an axis of steps or rounds, with a tick for each of few."""
    return {"range": [0, 1.02 * history.end], "dtick": 1 if history.end <= MAX_TICKS else None}


def dev_scores(history: History, kept: int | None = None) -> Any:
    """Return each task's dev score, and their mean; a line marks the step of the kept model."""
    figure = panels(tasks=len(history.tasks))
    mean = Look("", NEUTRAL, "solid", "")
    figure.add_trace(_scores("mean", mean, run_scores(history), line=mean.line(4)))
    # Many curves cross each other less with thin lines and no markers.
    thin = {"mode": "lines"} if len(history.tasks) > MAX_HOVERED else {}
    for task, look in looks(history.tasks).items():
        line = look.line(1.2 if thin else 2)
        figure.add_trace(_scores(task, look, dev_scores_of(history, task), line=line, **thin))
    best = kept_evaluation(history.evaluations).step if kept is None else kept
    figure.add_vline(
        best,
        line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
        annotation={"text": f"kept: {history.unit} {best:,}"},
        annotation_position="bottom right" if best < history.end / 2 else "bottom left",
    )
    figure.update_xaxes(title_text=history.unit, **step_axis(history))
    figure.update_yaxes(title_text="dev score, of 100", hoverformat=".1f")
    return figure


def _scores(name: str, look: Look, series: Series, **more: Any) -> Any:
    shown = thinned(len(series.steps))
    drawn = {"mode": "lines+markers" if len(shown) <= MAX_MARKED else "lines"} | more
    return curve(name, look, series.steps[shown], 100 * series.values[shown], **drawn)


def convergence(history: History) -> Any:
    """Return dev losses with their minima, above strips of the tasks' shares and uncertainties.

    Figure 2 of Fang and Alqatari (2020).
    """
    timelines = [("share", influence(history)), ("uncertainty", uncertainties(history))]
    strips = [(name, timeline) for name, timeline in timelines if timeline is not None]
    tasks = len(history.tasks)
    figure = panels(heights=(1.0, *(0.12 + 0.05 * tasks for _ in strips)), tasks=tasks)
    for task, look in looks(history.tasks).items():
        figure.add_traces(_loss_curve(task, dev_losses_of(history, task), look), rows=1, cols=1)
    for row, (name, timeline) in enumerate(strips, 2):
        _add_strip(figure, row, history, name, timeline)
    figure.update_yaxes(title_text="dev loss", row=1, col=1)
    figure.update_xaxes(**step_axis(history))
    figure.update_xaxes(title_text=history.unit, row=1 + len(strips), col=1)
    figure.update_layout(height=360 + len(strips) * (50 + 22 * tasks))
    return figure


def _loss_curve(task: str, series: Series, look: Look) -> list[Any]:
    shown = thinned(len(series.steps))
    least = [int(np.argmin(series.values))]
    star = {"color": look.colour, "symbol": "star", "size": 14}
    return [
        curve(task, look, series.steps[shown], series.values[shown]),
        curve(
            task,
            look,
            series.steps[least],
            series.values[least],
            mode="markers",
            marker=star,
            hoverinfo="skip",
        ),
    ]


def _add_strip(figure: Any, row: int, history: History, name: str, timeline: Timeline) -> None:
    go, _ = plotly()
    edges, means = timeline.binned(max_points(len(history.tasks), most=200))
    low, high = figure.layout[f"yaxis{row}"].domain
    bar = {"len": high - low, "y": (low + high) / 2, "thickness": 10, "nticks": 3}
    if name == "share":
        bar["tickformat"] = ".0%"
    heat = go.Heatmap(
        x=numbers(edges, 6),
        y=list(range(len(history.tasks))),
        z=numbers(means.T, 3),
        zmin=0,
        zmax=float(means.max()),
        name=name,
        colorscale=SCALE,
        colorbar=bar | {"outlinewidth": 0},
        text=[safe(task) for task in history.tasks],
        hovertemplate="%{z:.3f}<extra>" + name + "</extra>",
    )
    figure.add_trace(heat, row=row, col=1)
    figure.update_yaxes(
        title_text=name,
        tickvals=list(range(len(history.tasks))),
        ticktext=[shortened(task) for task in history.tasks],
        autorange="reversed",
        showgrid=False,
        row=row,
        col=1,
    )


def training_loss(history: History) -> Any:
    """Return each task's loss, smoothed over a twentieth of its batches; of few tasks raw, too."""
    return _batches(history, training_losses(history), "training loss")


def rollouts(history: History, name: str) -> Any:
    """Return a measurement of each task's completions, smoothed over a twentieth of its batches."""
    return _batches(history, measurements(history, name), name)


def _batches(history: History, series: Mapping[str, Series], title: str) -> Any:
    figure = panels(tasks=len(series))
    for task, look in looks(history.tasks).items():
        if task in series:
            figure.add_traces(_raw_and_smoothed(task, series[task], look, len(series)))
    figure.update_xaxes(title_text=history.unit, **step_axis(history))
    figure.update_yaxes(title_text=title, rangemode="tozero")
    return figure


def _raw_and_smoothed(task: str, series: Series, look: Look, tasks: int) -> list[Any]:
    shown = thinned(len(series.steps), max_points(tasks))
    smooth = smoothed(series.values, max(1, len(series.values) // 20))
    steps = series.steps[shown]
    smooth_curve = curve(task, look, steps, smooth[shown], line=look.line(2.5))
    if tasks > MAX_RAW_TASKS:
        return [smooth_curve]
    line = {"color": look.faint(0.35), "width": 1}
    raw = curve(task, look, steps, series.values[shown], digits=3, line=line, hoverinfo="skip")
    return [raw, smooth_curve]
