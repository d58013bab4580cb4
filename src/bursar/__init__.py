"""Bursar spends a training budget across tasks."""

from importlib import import_module
from types import ModuleType

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

_ROOMS = frozenset({"bandit", "offpolicy", "selection", "testing", "uncertainty", "weighting"})

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


def __getattr__(name: str) -> ModuleType:
    """A room is opened when it is first asked for: `bursar.offpolicy.estimate(...)`."""
    if name in _ROOMS:
        return import_module(f"bursar.{name}")
    raise AttributeError(f"module 'bursar' has no attribute {name!r}")
