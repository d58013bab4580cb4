"""Who gets the next batch: one file a policy, all behind one small ask/tell interface."""

from bursar.policies.annealed import Annealed
from bursar.policies.base import Draw, Facts, Outcome, Policy
from bursar.policies.cycle import Cycle
from bursar.policies.fixed import Fixed
from bursar.policies.random import Random
from bursar.policies.schedule import Schedule
from bursar.policies.signals import DevScore, Gain, Loss, Signal, Uncertainty
from bursar.policies.task_size import TaskSize
from bursar.policies.temperature import Temperature

POLICIES: tuple[type[Policy], ...] = (
    Random,
    TaskSize,
    Temperature,
    Annealed,
    Fixed,
    Cycle,
    Schedule,
)

__all__ = [
    "POLICIES",
    "Annealed",
    "Cycle",
    "DevScore",
    "Draw",
    "Facts",
    "Fixed",
    "Gain",
    "Loss",
    "Outcome",
    "Policy",
    "Random",
    "Schedule",
    "Signal",
    "TaskSize",
    "Temperature",
    "Uncertainty",
]
