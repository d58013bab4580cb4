"""Dev score of each task."""

from typing import Any

import numpy as np

from taskmix.report.curves import thinned
from taskmix.report.history import History
from taskmix.report.style import NEUTRAL, looks, panels, plotly, safe
from taskmix.report.timeline import Series, dev_scores_of, run_scores


def dev_scores(history: History, kept: int | None = None) -> Any:
    """Return each task's dev score over the budget, and their mean.

    Args:
        history: of the run.
        kept: the step or round whose model is kept, marked by a line; the best one if None.
    """
    figure = panels()
    mean = run_scores(history)
    for task, look in looks(history.tasks).items():
        line = {"color": look.colour, "dash": look.dash, "width": 2}
        figure.add_trace(_curve(safe(task), dev_scores_of(history, task), line))
    figure.add_trace(_curve("mean", mean, {"color": NEUTRAL, "width": 4}))
    best = int(mean.steps[np.argmax(mean.values)]) if kept is None else kept
    figure.add_vline(
        best,
        line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
        annotation={"text": f"kept: {history.unit} {best:,}"},
        annotation_position="bottom right" if best < history.end / 2 else "bottom left",
    )
    figure.update_xaxes(title_text=history.unit, range=[0, 1.02 * history.end])
    figure.update_yaxes(title_text="dev score, of 100", hoverformat=".1f")
    return figure


def _curve(name: str, series: Series, line: dict[str, Any]) -> Any:
    go, _ = plotly()
    shown = thinned(len(series.steps))
    mode = "lines+markers" if len(shown) <= 40 else "lines"
    return go.Scatter(
        x=series.steps[shown], y=100 * series.values[shown], name=name, mode=mode, line=line
    )
