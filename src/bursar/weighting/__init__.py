"""How much an update counts: one target task, the others there to help."""

from bursar.weighting.alpha_vil import AlphaVIL
from bursar.weighting.base import Report, Weighting, Worker, play
from bursar.weighting.diw import DIW
from bursar.weighting.fixed import Joint, Single
from bursar.weighting.tuners import ClosedForm, Descent, Sweeps, Tuner

WEIGHTINGS: tuple[type[Weighting], ...] = (AlphaVIL, DIW, Joint, Single)

__all__ = [
    "DIW",
    "WEIGHTINGS",
    "AlphaVIL",
    "ClosedForm",
    "Descent",
    "Joint",
    "Report",
    "Single",
    "Sweeps",
    "Tuner",
    "Weighting",
    "Worker",
    "play",
]
