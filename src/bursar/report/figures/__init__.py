"""One figure a file; each function returns a plotly figure."""

from bursar.report.figures.convergence import convergence
from bursar.report.figures.dev_scores import dev_scores
from bursar.report.figures.final_scores import final_scores
from bursar.report.figures.score_bands import score_bands
from bursar.report.figures.selection import selection
from bursar.report.figures.shares import shares
from bursar.report.figures.training_loss import training_loss
from bursar.report.figures.weighting import weighting

__all__ = [
    "convergence",
    "dev_scores",
    "final_scores",
    "score_bands",
    "selection",
    "shares",
    "training_loss",
    "weighting",
]
