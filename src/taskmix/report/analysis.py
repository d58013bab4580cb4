"""The page of an analysis: scores, similarities and parameters of a model by task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taskmix.report.document import Caption, Plot, document, table, tiles, write_page
from taskmix.report.style import SCALE, looks, numbers, panels, plotly, shortened
from taskmix.report.timeline import Floats
from taskmix.studies.analyse import Analysis

NAME = "analysis.html"
_SIMILARITY = Caption(
    "Covariance similarity",
    "Equation 7 of Pilault et al. (2021): the similarity of the inputs of the first layer between "
    "two tasks, before and after the conditional alignment. A task's similarity to itself is "
    "below 1.",
)
_SCORES = Caption(
    "Compared with single-task training",
    "Where the first bar is at least as high as the second, the task lost nothing by sharing.",
)


def write_analysis(analysis: Analysis, folder: Path, title: str) -> Path:
    """Write `analysis.html` into a folder; return its path."""
    plotly()
    made = [Plot(_SCORES, single_task_bars(analysis.scores, analysis.single))]
    if analysis.before is not None and analysis.after is not None:
        drawn = similarity(analysis.tasks, analysis.before, analysis.after)
        made.append(Plot(_SIMILARITY, drawn))
    first, *others = map(table, analysis.tables())
    body: list[str | Plot] = [tiles(analysis.facts()), first, *made, *others]
    page = document(title, "analysis of the tasks", analysis.verdict(), body)
    return write_page(folder / NAME, page)


def single_task_bars(scores: Mapping[str, float], single: Mapping[str, float]) -> Any:
    """Return bars for each task: in the model of all tasks, and in its own where that was run."""
    go, _ = plotly()
    figure = panels()
    series = {"all tasks together": scores, "the task alone": single}
    for (name, look), values in zip(looks(series).items(), series.values(), strict=True):
        if values:
            marker = {"color": look.colour, "pattern": look.hatch}
            x = [shortened(task) for task in values]
            y = numbers([100 * value for value in values.values()])
            figure.add_trace(go.Bar(x=x, y=y, name=name, marker=marker))
    figure.update_layout(barmode="group", bargap=0.25, hovermode="closest")
    figure.update_yaxes(title_text="dev score, of 100", hoverformat=".1f")
    return figure


def similarity(tasks: Sequence[str], before: Floats, after: Floats) -> Any:
    """Return two heat maps of covariance similarities, each of shape `(tasks, tasks)`."""
    go, _ = plotly()
    figure = panels(widths=(1.0, 1.0))
    names = [shortened(task) for task in tasks]
    common = {"x": names, "y": names, "zmin": 0, "zmax": 1, "colorscale": SCALE}
    for column, (title, values) in enumerate((("before", before), ("after", after)), 1):
        drawn = go.Heatmap(
            z=numbers(values),
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
