"""Scores of one model for all tasks beside those of a model for each."""

from collections.abc import Mapping
from typing import Any

from taskmix.report.style import looks, panels, plotly, safe


def beside_single(scores: Mapping[str, float], single: Mapping[str, float]) -> Any:
    """Bars for each task: together, and alone where that was run.

    Args:
        scores: by task, its score in the model of all tasks.
        single: by task, its score in a model of its own.
    """
    go, _ = plotly()
    figure = panels()
    series = {"all tasks together": scores, "the task alone": single}
    for (name, look), values in zip(looks(series).items(), series.values(), strict=True):
        if values:
            marker = {"color": look.colour, "pattern": look.hatch}
            x, y = [safe(task) for task in values], [100 * value for value in values.values()]
            figure.add_trace(go.Bar(x=x, y=y, name=name, marker=marker))
    figure.update_layout(barmode="group", bargap=0.25, hovermode="closest")
    figure.update_yaxes(title_text="dev score, of 100", hoverformat=".1f")
    return figure
