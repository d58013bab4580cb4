"""One figure a file; each function returns a plotly figure.

A family of deciders has a figure of its own: a module with `draw(history)` and a `CAPTION`, which
`taskmix.families` names.
"""

from taskmix.report.figures.convergence import convergence
from taskmix.report.figures.dev_scores import dev_scores
from taskmix.report.figures.differences import differences
from taskmix.report.figures.ratio_map import ratio_map
from taskmix.report.figures.score_bands import score_bands
from taskmix.report.figures.search_history import search_history
from taskmix.report.figures.training_loss import training_loss
from taskmix.report.figures.utilities import utilities

__all__ = [
    "convergence",
    "dev_scores",
    "differences",
    "ratio_map",
    "score_bands",
    "search_history",
    "training_loss",
    "utilities",
]
