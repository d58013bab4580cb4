"""Shares of the draws."""

from collections import Counter
from typing import Any

from taskmix.report.captions import Caption
from taskmix.report.history import History
from taskmix.report.style import looks, panels, plotly, safe
from taskmix.report.timeline import Timeline, asked

CAPTION = Caption(
    "Shares of the draws",
    "The height of a colour is the probability with which its task was drawn; the two bars "
    "compare the average asked for with what chance then drew.",
)


def draw(history: History) -> Any:
    """The shares asked over the steps as areas; beside them what was asked and drawn in all."""
    timeline = asked(history)
    if timeline is None:
        raise ValueError("history: expected shares records, found none")
    figure = panels(widths=(0.86, 0.14))
    figure.add_traces(_areas(history, timeline), rows=1, cols=1)
    figure.add_traces(_bars(history, timeline), rows=1, cols=2)
    figure.update_layout(barmode="stack", bargap=0.15)
    figure.update_xaxes(title_text="step", range=[timeline.steps[0], timeline.end], row=1, col=1)
    figure.update_yaxes(range=[0, 1], tickformat=".0%", hoverformat=".1%")
    figure.update_yaxes(title_text="share of the draws", row=1, col=1)
    return figure


def _areas(history: History, timeline: Timeline) -> list[Any]:
    go, _ = plotly()
    steps, values = timeline.corners()
    return [
        go.Scatter(
            x=steps,
            y=column,
            name=safe(task),
            legendgroup=task,
            stackgroup="asked",
            mode="lines",
            line={"width": 0, "color": look.colour, "shape": "hv"},
            fillcolor=look.colour,
            fillpattern=look.hatch,
        )
        for (task, look), column in zip(looks(history.tasks).items(), values.T, strict=True)
    ]


def _bars(history: History, timeline: Timeline) -> list[Any]:
    go, _ = plotly()
    drawn = Counter(task for unit in history.units for task in unit.shares())
    total = max(1, drawn.total())
    return [
        go.Bar(
            x=["asked", "drawn"],
            y=[mean, drawn[task] / total],
            name=safe(task),
            legendgroup=task,
            showlegend=False,
            marker={"color": look.colour, "pattern": look.hatch},
        )
        for (task, look), mean in zip(looks(history.tasks).items(), timeline.mean(), strict=True)
    ]
