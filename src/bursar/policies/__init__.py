"""Who gets the next batch: one file a policy, all behind one small ask/tell interface."""

from bursar.policies.base import Draw, Facts, Outcome, Policy
from bursar.policies.random import Random
from bursar.policies.signals import DevScore, Gain, Loss, Signal, Uncertainty

__all__ = [
    "DevScore",
    "Draw",
    "Facts",
    "Gain",
    "Loss",
    "Outcome",
    "Policy",
    "Random",
    "Signal",
    "Uncertainty",
]
