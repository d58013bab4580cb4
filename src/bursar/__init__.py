"""Bursar spends a training budget across tasks.

The names below are the public ones, and the rooms `bandit`, `mixing`, `models`, `offpolicy`,
`search`, `selection`, `testing`, `uncertainty` and `weighting` with the names in their `__all__`.
Everything else is internal. Nothing is imported before it is used; torch least of all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bursar.config import RunConfig
    from bursar.journal import Journal
    from bursar.offpolicy import Log, estimate, improve
    from bursar.policies import (
        ADO,
        ODM,
        ActivePrioritization,
        Aimed,
        Aioli,
        Alignment,
        Annealed,
        Cycle,
        DevLosses,
        DevScore,
        DoGE,
        Draw,
        Exp3S,
        Fixed,
        Gain,
        Loss,
        Outcome,
        Policy,
        Progress,
        Random,
        Schedule,
        Signal,
        Skill,
        Stratified,
        TaskSize,
        Temperature,
        Thompson,
        Uncertainty,
        Worth,
    )
    from bursar.studies.autosem import autosem
    from bursar.studies.compare import compare
    from bursar.tasks.data import from_data
    from bursar.tasks.files import from_files
    from bursar.tasks.hub import from_hub
    from bursar.tasks.task import Task
    from bursar.training.inference import load_run as load
    from bursar.training.run import resume_run as resume
    from bursar.training.run import run

__all__ = [
    "ADO",
    "ODM",
    "ActivePrioritization",
    "Aimed",
    "Aioli",
    "Alignment",
    "Annealed",
    "Cycle",
    "DevLosses",
    "DevScore",
    "DoGE",
    "Draw",
    "Exp3S",
    "Fixed",
    "Gain",
    "Journal",
    "Log",
    "Loss",
    "Outcome",
    "Policy",
    "Progress",
    "Random",
    "RunConfig",
    "Schedule",
    "Signal",
    "Skill",
    "Stratified",
    "Task",
    "TaskSize",
    "Temperature",
    "Thompson",
    "Uncertainty",
    "Worth",
    "__version__",
    "autosem",
    "compare",
    "estimate",
    "from_data",
    "from_files",
    "from_hub",
    "improve",
    "load",
    "resume",
    "run",
]

_PLACES = {
    "Journal": "bursar.journal",
    "Log": "bursar.offpolicy",
    "RunConfig": "bursar.config",
    "Task": "bursar.tasks.task",
    "autosem": "bursar.studies.autosem",
    "compare": "bursar.studies.compare",
    "estimate": "bursar.offpolicy",
    "from_data": "bursar.tasks.data",
    "from_files": "bursar.tasks.files",
    "from_hub": "bursar.tasks.hub",
    "improve": "bursar.offpolicy",
    "load": "bursar.training.inference:load_run",
    "resume": "bursar.training.run:resume_run",
    "run": "bursar.training.run",
}
"""Where a public name lives, and what it is called there; the others are policies and signals."""

_ROOMS = frozenset(
    {
        "bandit",
        "mixing",
        "models",
        "offpolicy",
        "search",
        "selection",
        "testing",
        "uncertainty",
        "weighting",
    }
)


def __getattr__(name: str) -> Any:
    """Import a public name, or a room, when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("bursar")
    if name in _ROOMS:
        return import_module(f"bursar.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'bursar' has no attribute {name!r}")
    module, _, called = _PLACES.get(name, "bursar.policies").partition(":")
    found = getattr(import_module(module), called or name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
