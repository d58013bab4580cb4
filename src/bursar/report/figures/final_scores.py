"""Final scores of several policies."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bursar.report.curves import Floats
from bursar.report.standing import Standing
from bursar.report.style import NEUTRAL, looks, panels, plotly, safe


def final_scores(runs: Mapping[str, Sequence[Standing]]) -> Any:
    """Bars for the mean over the seeds, whiskers for their range: each task, then the mean.

    Args:
        runs: by policy, how its seeds stand.
    """
    go, _ = plotly()
    figure = panels()
    tasks = list(next(iter(runs.values()))[0].scores)
    for (name, look), standings in zip(looks(runs).items(), runs.values(), strict=True):
        scores = 100 * by_task(standings, tasks)
        mean = scores.mean(axis=0)
        whiskers = {
            "symmetric": False,
            "array": scores.max(axis=0) - mean,
            "arrayminus": mean - scores.min(axis=0),
            "color": NEUTRAL,
            "thickness": 1.5,
        }
        marker = {"color": look.colour, "pattern": look.hatch}
        x = [*map(safe, tasks), "<b>mean</b>"]
        figure.add_trace(go.Bar(x=x, y=mean, name=safe(name), error_y=whiskers, marker=marker))
    figure.update_layout(barmode="group", bargap=0.25, hovermode="closest")
    figure.update_yaxes(title_text="final dev score, of 100", hoverformat=".1f")
    return figure


def by_task(standings: Sequence[Standing], tasks: Sequence[str]) -> Floats:
    """Final scores by seed and task, the mean over the tasks last, shape `(seeds, tasks + 1)`."""
    return np.array(
        [[*(run.scores[task] for task in tasks), run.score] for run in standings], dtype=np.float64
    )
