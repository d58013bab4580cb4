"""Weightings choose how much the training of each task counts, to help one target task."""

from taskmix.weighting.alpha_vil import AlphaVIL
from taskmix.weighting.base import Report, Weighting, Worker
from taskmix.weighting.diw import DIW, DIWEveryTry
from taskmix.weighting.fixed import Joint, Single
from taskmix.weighting.tuners import ClosedForm, Descent, Sweeps, Tuner

WEIGHTINGS: tuple[type[Weighting], ...] = (AlphaVIL, DIW, DIWEveryTry, Joint, Single)

__all__ = [
    "DIW",
    "WEIGHTINGS",
    "AlphaVIL",
    "ClosedForm",
    "DIWEveryTry",
    "Descent",
    "Joint",
    "Report",
    "Single",
    "Sweeps",
    "Tuner",
    "Weighting",
    "Worker",
]
