"""What a weighting decided, round by round."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.journal import Round
from taskmix.report.captions import Caption
from taskmix.report.curves import thinned
from taskmix.report.history import History
from taskmix.report.style import NEUTRAL, looks, panels, plotly, safe
from taskmix.report.timeline import influence

CAPTION = Caption(
    "Weights",
    "An α above 1 says that the target wants more of a task's update, below 1 less; the weights "
    "are the sum of these corrections over the rounds.",
)


def draw(history: History) -> Any:
    """α and the normalised weights of the tasks over the rounds.

    Figure 3 of Kourdis, Gordon-Hall and Gorinski (2020). Without the panel of α where a weighting
    has none.
    """
    weights = influence(history)
    rounds = _rounds(history)
    if weights is None or not rounds:
        raise ValueError("history: expected round records, found none")
    by_task = dict(zip(history.tasks, weights.values.T, strict=True))
    alphas = _alphas(history)
    figure = panels(heights=(0.5, 0.5) if alphas else (1.0,))
    if alphas:
        figure.add_traces(_curves(history, alphas, legend=False), rows=1, cols=1)
        figure.add_hline(1.0, line={"color": NEUTRAL, "dash": "dot", "width": 1}, row=1, col=1)
        figure.update_yaxes(title_text="α", row=1, col=1)
    last = 2 if alphas else 1
    figure.add_traces(_curves(history, by_task, legend=True), rows=last, cols=1)
    figure.update_yaxes(title_text="normalised weight", range=[-0.02, 1.02], row=last, col=1)
    figure.update_xaxes(title_text="round", row=last, col=1)
    figure.update_layout(height=300 + 180 * (last - 1))
    return figure


def _alphas(history: History) -> dict[str, Sequence[float]]:
    return {
        task: [record.alphas[task] for record in _rounds(history)]
        for task in history.tasks
        if all(task in record.alphas for record in _rounds(history))
    }


def _rounds(history: History) -> list[Round]:
    return [unit for unit in history.units if isinstance(unit, Round)]


def _curves(history: History, values: Mapping[str, Sequence[float]], *, legend: bool) -> list[Any]:
    go, _ = plotly()
    styles = looks(history.tasks)
    shown = thinned(len(_rounds(history)))
    return [
        go.Scatter(
            x=shown + 1,
            y=np.asarray(column)[shown],
            name=safe(task),
            legendgroup=task,
            showlegend=legend,
            mode="lines+markers" if len(shown) <= 40 else "lines",
            line={"color": styles[task].colour, "dash": styles[task].dash, "width": 2},
        )
        for task, column in values.items()
    ]
