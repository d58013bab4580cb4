"""Bursar spends a training budget across tasks."""

from bursar.policies import (
    Annealed,
    Cycle,
    Draw,
    Fixed,
    Outcome,
    Policy,
    Random,
    Schedule,
    TaskSize,
    Temperature,
)

__all__ = [
    "Annealed",
    "Cycle",
    "Draw",
    "Fixed",
    "Outcome",
    "Policy",
    "Random",
    "Schedule",
    "TaskSize",
    "Temperature",
]
