"""Figures of one run."""

from typing import Any

import numpy as np

from taskmix.report.document import Caption
from taskmix.report.history import History
from taskmix.report.style import NEUTRAL, SCALE, Look, looks, panels, plotly, safe
from taskmix.report.timeline import (
    Series,
    Timeline,
    dev_losses_of,
    dev_scores_of,
    influence,
    run_scores,
    smoothed,
    thinned,
    training_losses,
    uncertainties,
)
from taskmix.training.objective import kept_evaluation

DEV_SCORES = Caption(
    "Dev scores",
    "Higher is better; the dashed line marks the model that is kept.",
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
STRIP_CELLS = 200


def dev_scores(history: History, kept: int | None = None) -> Any:
    """Return each task's dev score, and their mean; a line marks the step of the kept model."""
    figure = panels()
    mean = run_scores(history)
    for task, look in looks(history.tasks).items():
        line = {"color": look.colour, "dash": look.dash, "width": 2}
        figure.add_trace(_score_curve(safe(task), dev_scores_of(history, task), line))
    figure.add_trace(_score_curve("mean", mean, {"color": NEUTRAL, "width": 4}))
    best = kept_evaluation(history.evaluations).step if kept is None else kept
    figure.add_vline(
        best,
        line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
        annotation={"text": f"kept: {history.unit} {best:,}"},
        annotation_position="bottom right" if best < history.end / 2 else "bottom left",
    )
    figure.update_xaxes(title_text=history.unit, range=[0, 1.02 * history.end])
    figure.update_yaxes(title_text="dev score, of 100", hoverformat=".1f")
    return figure


def _score_curve(name: str, series: Series, line: dict[str, Any]) -> Any:
    go, _ = plotly()
    shown = thinned(len(series.steps))
    mode = "lines+markers" if len(shown) <= 40 else "lines"
    return go.Scatter(
        x=series.steps[shown], y=100 * series.values[shown], name=name, mode=mode, line=line
    )


def convergence(history: History) -> Any:
    """Return dev losses with their minima, above strips of the tasks' shares and uncertainties.

    Figure 2 of Fang and Alqatari (2020).
    """
    timelines = [("share", influence(history)), ("uncertainty", uncertainties(history))]
    strips = [(name, timeline) for name, timeline in timelines if timeline is not None]
    figure = panels(heights=(1.0, *(0.12 + 0.05 * len(history.tasks) for _ in strips)))
    for task, look in looks(history.tasks).items():
        figure.add_traces(_loss_curve(task, dev_losses_of(history, task), look), rows=1, cols=1)
    for row, (name, timeline) in enumerate(strips, 2):
        _add_strip(figure, row, history, name, timeline)
    figure.update_yaxes(title_text="dev loss", row=1, col=1)
    figure.update_xaxes(range=[0, 1.02 * history.end])
    figure.update_xaxes(title_text=history.unit, row=1 + len(strips), col=1)
    figure.update_layout(height=360 + len(strips) * (50 + 22 * len(history.tasks)))
    return figure


def _loss_curve(task: str, series: Series, look: Look) -> list[Any]:
    go, _ = plotly()
    shown = thinned(len(series.steps))
    least = int(np.argmin(series.values))
    common = {"legendgroup": task, "name": safe(task)}
    return [
        go.Scatter(
            x=series.steps[shown],
            y=series.values[shown],
            mode="lines",
            line={"color": look.colour, "dash": look.dash, "width": 2},
            **common,
        ),
        go.Scatter(
            x=series.steps[[least]],
            y=series.values[[least]],
            mode="markers",
            marker={"color": look.colour, "symbol": "star", "size": 14},
            showlegend=False,
            hoverinfo="skip",
            **common,
        ),
    ]


def _add_strip(figure: Any, row: int, history: History, name: str, timeline: Timeline) -> None:
    go, _ = plotly()
    edges, means = timeline.binned(STRIP_CELLS)
    low, high = figure.layout[f"yaxis{row}"].domain
    bar = {"len": high - low, "y": (low + high) / 2, "thickness": 10, "nticks": 3}
    heat = go.Heatmap(
        x=edges,
        y=[safe(task) for task in history.tasks],
        z=means.T,
        zmin=0,
        zmax=means.max(),
        name=name,
        colorscale=SCALE,
        colorbar=bar | {"outlinewidth": 0},
        hovertemplate="%{y}: %{z:.3f}<extra>" + name + "</extra>",
    )
    figure.add_trace(heat, row=row, col=1)
    figure.update_yaxes(title_text=name, autorange="reversed", showgrid=False, row=row, col=1)


def training_loss(history: History) -> Any:
    """Return each task's loss, smoothed over a twentieth of its batches, raw behind it."""
    series = training_losses(history)
    figure = panels()
    for task, look in looks(history.tasks).items():
        if task in series:
            figure.add_traces(_raw_and_smoothed(task, series[task], look))
    figure.update_xaxes(title_text=history.unit, range=[0, 1.02 * history.end])
    figure.update_yaxes(title_text="training loss", rangemode="tozero")
    return figure


def _raw_and_smoothed(task: str, series: Series, look: Look) -> list[Any]:
    go, _ = plotly()
    shown = thinned(len(series.steps))
    smooth = smoothed(series.values, max(1, len(series.values) // 20))
    line = {"color": look.colour, "dash": look.dash, "width": 2.5}
    common = {"x": series.steps[shown], "mode": "lines", "legendgroup": task, "name": safe(task)}
    return [
        go.Scatter(
            y=series.values[shown],
            line={"color": look.faint(0.35), "width": 1},
            showlegend=False,
            hoverinfo="skip",
            **common,
        ),
        go.Scatter(y=smooth[shown], line=line, **common),
    ]
