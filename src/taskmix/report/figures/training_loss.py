"""Training loss of each task."""

from typing import Any

from taskmix.report.curves import smoothed, thinned
from taskmix.report.history import History
from taskmix.report.style import Look, looks, panels, plotly, safe
from taskmix.report.timeline import Series, training_losses


def training_loss(history: History) -> Any:
    """Each task's loss over the budget: smoothed over a twentieth of its batches, raw behind it."""
    series = training_losses(history)
    figure = panels()
    for task, look in looks(history.tasks).items():
        if task in series:
            figure.add_traces(_pair(task, series[task], look))
    figure.update_xaxes(title_text=history.unit, range=[0, 1.02 * history.end])
    figure.update_yaxes(title_text="training loss", rangemode="tozero")
    return figure


def _pair(task: str, series: Series, look: Look) -> list[Any]:
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
