"""Figures: each function returns a plotly figure, each has a caption beside it."""

from taskmix.report.figures.autosem import ratio_map, search_history, utilities
from taskmix.report.figures.comparison import differences, score_bands, share_panels
from taskmix.report.figures.deciders import selection, shares, weighting
from taskmix.report.figures.run import convergence, dev_scores, rollouts, training_loss

__all__ = [
    "convergence",
    "dev_scores",
    "differences",
    "ratio_map",
    "rollouts",
    "score_bands",
    "search_history",
    "selection",
    "share_panels",
    "shares",
    "training_loss",
    "utilities",
    "weighting",
]
