"""One figure a file; each function returns a plotly figure.

A family of deciders has a figure of its own: a module with `draw(history)` and a `CAPTION`, which
`bursar.families` names.
"""

from bursar.report.figures.convergence import convergence
from bursar.report.figures.dev_scores import dev_scores
from bursar.report.figures.differences import differences
from bursar.report.figures.ratio_map import ratio_map
from bursar.report.figures.score_bands import score_bands
from bursar.report.figures.search_history import search_history
from bursar.report.figures.training_loss import training_loss
from bursar.report.figures.utilities import utilities

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
