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
        maps = {"before": analysis.before, "after": analysis.after}
        drawn = {name: similarity(analysis.tasks, values) for name, values in maps.items()}
        made.append(Plot(_SIMILARITY, panels=drawn))
    first, *others = map(table, analysis.tables())
    body: list[str | Plot] = [tiles(analysis.facts()), first, *made, *others]
    page = document(title, "analysis of the tasks", analysis.verdict(), body)
    return write_page(folder / NAME, page)


def single_task_bars(scores: Mapping[str, float], single: Mapping[str, float]) -> Any:
    """Return bars for each task: in the model of all tasks, and in its own where that was run."""
    go, _ = plotly()
    figure = panels()
    series = {"all tasks together": scores, "the task alone": single}
    tasks = list(scores)
    for (name, look), values in zip(looks(series).items(), series.values(), strict=True):
        if values:
            marker = {"color": look.colour, "pattern": look.hatch}
            x = [tasks.index(task) for task in values]
            y = numbers([100 * value for value in values.values()])
            figure.add_trace(go.Bar(x=x, y=y, name=name, marker=marker))
    figure.update_layout(barmode="group", bargap=0.25, hovermode="closest")
    names = [shortened(task) for task in tasks]
    figure.update_xaxes(tickvals=list(range(len(tasks))), ticktext=names)
    figure.update_yaxes(title_text="dev score, of 100", hoverformat=".1f")
    return figure


def similarity(tasks: Sequence[str], values: Floats) -> Any:
    """Return a heat map of covariance similarities of shape `(tasks, tasks)`."""
    go, _ = plotly()
    figure = panels()
    heat = go.Heatmap(
        z=numbers(values),
        zmin=0,
        zmax=1,
        colorscale=SCALE,
        text=[[f"{value:.2f}" for value in row] for row in values],
        texttemplate="%{text}",
        hovertemplate="%{z:.3f}<extra></extra>",
        showscale=False,
    )
    figure.add_trace(heat)
    names = [shortened(task) for task in tasks]
    figure.update_xaxes(tickvals=list(range(len(tasks))), ticktext=names)
    figure.update_yaxes(tickvals=list(range(len(tasks))), ticktext=names, autorange="reversed")
    figure.update_layout(height=160 + 40 * len(tasks), hovermode="closest")
    return figure
