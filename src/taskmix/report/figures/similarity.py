"""How alike the inputs of tasks are, before and behind the conditional alignment."""

from collections.abc import Sequence
from typing import Any

from taskmix.report.curves import Floats
from taskmix.report.style import SCALE, panels, plotly, safe


def similarity(tasks: Sequence[str], before: Floats, after: Floats) -> Any:
    """Two heat maps on one scale: covariance similarities of all pairs of tasks.

    Args:
        tasks: their names.
        before: of what the embeddings give, shape `(tasks, tasks)`.
        after: of what enters the first layer, shape `(tasks, tasks)`.
    """
    go, _ = plotly()
    figure = panels(widths=(1.0, 1.0))
    names = [safe(task) for task in tasks]
    common = {"x": names, "y": names, "zmin": 0, "zmax": 1, "colorscale": SCALE}
    for column, (title, values) in enumerate((("before", before), ("after", after)), 1):
        drawn = go.Heatmap(
            z=values,
            text=[[f"{value:.2f}" for value in row] for row in values],
            texttemplate="%{text}",
            showscale=column == 2,
            **common,
        )
        figure.add_trace(drawn, row=1, col=column)
        figure.update_xaxes(title_text=title, row=1, col=column)
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(hovermode="closest")
    return figure
