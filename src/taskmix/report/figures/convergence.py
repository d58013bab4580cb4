"""Where each task converges."""

from typing import Any

import numpy as np

from taskmix.report.curves import thinned
from taskmix.report.history import History
from taskmix.report.style import SCALE, Look, looks, panels, plotly, safe
from taskmix.report.timeline import Series, Timeline, dev_losses_of, influence, uncertainties

#: Cells in a row of a heat strip.
CELLS = 200


def convergence(history: History) -> Any:
    """Dev losses with their minima; below them each task's part in training and uncertainty.

    Figure 2 of Fang and Alqatari (2020). A strip is left out where the journal has nothing for it.
    """
    found = [("share", influence(history)), ("uncertainty", uncertainties(history))]
    strips = [(name, timeline) for name, timeline in found if timeline is not None]
    figure = panels(heights=(1.0, *(0.12 + 0.05 * len(history.tasks) for _ in strips)))
    for task, look in looks(history.tasks).items():
        figure.add_traces(_curve(task, dev_losses_of(history, task), look), rows=1, cols=1)
    for row, (name, timeline) in enumerate(strips, 2):
        _add_strip(figure, row, history, name, timeline)
    figure.update_yaxes(title_text="dev loss", row=1, col=1)
    figure.update_xaxes(range=[0, 1.02 * history.end])
    figure.update_xaxes(title_text=history.unit, row=1 + len(strips), col=1)
    figure.update_layout(height=360 + len(strips) * (50 + 22 * len(history.tasks)))
    return figure


def _curve(task: str, series: Series, look: Look) -> list[Any]:
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
    edges, means = timeline.binned(CELLS)
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
