"""Bursar spends a training budget across tasks."""

from bursar.policies import (
    ActivePrioritization,
    Annealed,
    Cycle,
    Draw,
    Exp3S,
    Fixed,
    Outcome,
    Policy,
    Progress,
    Random,
    Schedule,
    Stratified,
    TaskSize,
    Temperature,
    Thompson,
)

__all__ = [
    "ActivePrioritization",
    "Annealed",
    "Cycle",
    "Draw",
    "Exp3S",
    "Fixed",
    "Outcome",
    "Policy",
    "Progress",
    "Random",
    "Schedule",
    "Stratified",
    "TaskSize",
    "Temperature",
    "Thompson",
]
