"""The page of an analysis: what a conditioned model made of its tasks."""

from pathlib import Path

from taskmix.report.captions import Caption
from taskmix.report.curves import Floats
from taskmix.report.document import Plot, document, plots, table, tiles, verbatim, write_page
from taskmix.report.figures.beside_single import beside_single
from taskmix.report.figures.similarity import similarity
from taskmix.report.numbers import UNKNOWN, hundredths
from taskmix.report.style import plotly
from taskmix.studies.analyse import Analysis

NAME = "analysis.html"
HEAD = ("task", "score", "alone", "difficulty", "similarity before", "after", "head parameters")
_SIMILARITY = Caption(
    "Covariance similarity",
    "Equation 7 of Pilault et al. (2021): how alike what enters the first layer is for two tasks, "
    "before and after the conditional alignment; a task and itself are below 1.",
)
_SCORES = Caption(
    "Beside single-task training",
    "Where the first bar is at least as high as the second, the task lost nothing by sharing.",
)


def write_analysis(analysis: Analysis, folder: Path, title: str) -> Path:
    """Write `analysis.html` into a folder; returns its path.

    Args:
        analysis: what was found.
        folder: of the run.
        title: its heading.
    """
    plotly()
    made = [Plot(_SCORES, beside_single(analysis.scores, analysis.single))]
    if analysis.before is not None and analysis.after is not None:
        drawn = similarity(analysis.tasks, analysis.before, analysis.after)
        made.append(Plot(_SIMILARITY, drawn))
    body = [tiles(facts(analysis)), table(HEAD, rows(analysis)), *plots(made)]
    if analysis.parameters is not None:
        body.append(verbatim(str(analysis.parameters)))
    return write_page(folder / NAME, document(title, "analysis of the tasks", body))


def facts(analysis: Analysis) -> dict[str, str]:
    """Return what a person wants to know first, by name."""
    found = {"task σ": hundredths(analysis.sigma)}
    if analysis.single:
        reached, of = len(analysis.reached), len(analysis.single)
        found["at or above single-task"] = f"{reached} of {of} tasks"
    if analysis.parameters is not None:
        found["parameters"] = f"{analysis.parameters.ratio:.3f} x the encoder's"
        found["trained a task"] = f"{analysis.parameters.trained_per_task:.3f} x the encoder's"
    return found


def rows(analysis: Analysis) -> list[list[str]]:
    """Return a row for each task, under `HEAD`."""
    before = _means(analysis, analysis.before)
    after = _means(analysis, analysis.after)
    found = []
    for k, task in enumerate(analysis.tasks):
        hard = analysis.difficulty[task]
        found.append(
            [
                task,
                hundredths(analysis.scores[task]),
                hundredths(analysis.single.get(task)),
                UNKNOWN if hard is None else f"{hard.total:.2f}",
                before[k],
                after[k],
                f"{analysis.heads[task]:,}",
            ]
        )
    return found


def _means(analysis: Analysis, values: Floats | None) -> list[str]:
    """Return each task's mean similarity to the others, where there are others."""
    count = len(analysis.tasks)
    if values is None or count < 2:
        return [UNKNOWN] * count
    means = (values.sum(1) - values.diagonal()) / (count - 1)
    return [f"{mean:.3f}" for mean in means]
