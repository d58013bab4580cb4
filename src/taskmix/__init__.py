"""Taskmix spends a training budget across tasks.

The names below are public, and so are the packages `bandit`, `mixing`, `models`, `offpolicy`,
`policies`, `search`, `selection`, `testing`, `uncertainty` and `weighting` with the names in their
`__all__`. Everything else is internal. Nothing is imported before it is used; torch least of all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskmix.config import RunConfig
    from taskmix.journal import Journal
    from taskmix.offpolicy import Log
    from taskmix.policies import (
        ADO,
        DUMP,
        ODM,
        SEC,
        ActivePrioritization,
        Aimed,
        Aioli,
        Alignment,
        Annealed,
        BatchScore,
        Climb,
        Cycle,
        DevLosses,
        DevScore,
        DoGE,
        Draw,
        Exp3S,
        Fixed,
        Gain,
        Learnability,
        Loss,
        Outcome,
        Policy,
        Progress,
        Random,
        Rewards,
        Schedule,
        Signal,
        Stratified,
        TaskSize,
        Temperature,
        Thompson,
        Uncertainty,
    )
    from taskmix.report.page import write_report
    from taskmix.studies.autosem import autosem
    from taskmix.studies.compare import compare
    from taskmix.studies.improve import estimate, improve
    from taskmix.studies.plan import plan
    from taskmix.studies.reproduce import reproduce
    from taskmix.studies.tune import tune
    from taskmix.tasks.data import from_data
    from taskmix.tasks.files import from_files
    from taskmix.tasks.hub import from_hub
    from taskmix.tasks.task import Task
    from taskmix.training.inference import load_run as load
    from taskmix.training.run import resume_run as resume
    from taskmix.training.run import run

__all__ = [
    "ADO",
    "DUMP",
    "ODM",
    "SEC",
    "ActivePrioritization",
    "Aimed",
    "Aioli",
    "Alignment",
    "Annealed",
    "BatchScore",
    "Climb",
    "Cycle",
    "DevLosses",
    "DevScore",
    "DoGE",
    "Draw",
    "Exp3S",
    "Fixed",
    "Gain",
    "Journal",
    "Learnability",
    "Log",
    "Loss",
    "Outcome",
    "Policy",
    "Progress",
    "Random",
    "Rewards",
    "RunConfig",
    "Schedule",
    "Signal",
    "Stratified",
    "Task",
    "TaskSize",
    "Temperature",
    "Thompson",
    "Uncertainty",
    "__version__",
    "autosem",
    "compare",
    "estimate",
    "from_data",
    "from_files",
    "from_hub",
    "improve",
    "load",
    "plan",
    "reproduce",
    "resume",
    "run",
    "tune",
    "write_report",
]

_PLACES = {
    "Journal": "taskmix.journal",
    "Log": "taskmix.offpolicy",
    "RunConfig": "taskmix.config",
    "Task": "taskmix.tasks.task",
    "autosem": "taskmix.studies.autosem",
    "compare": "taskmix.studies.compare",
    "estimate": "taskmix.studies.improve",
    "from_data": "taskmix.tasks.data",
    "from_files": "taskmix.tasks.files",
    "from_hub": "taskmix.tasks.hub",
    "improve": "taskmix.studies.improve",
    "load": "taskmix.training.inference:load_run",
    "plan": "taskmix.studies.plan",
    "reproduce": "taskmix.studies.reproduce",
    "resume": "taskmix.training.run:resume_run",
    "run": "taskmix.training.run",
    "tune": "taskmix.studies.tune",
    "write_report": "taskmix.report.page",
}
"""Where a public name lives, and what it is called there; the others are policies and signals."""

_ROOMS = frozenset(
    {
        "bandit",
        "mixing",
        "models",
        "offpolicy",
        "policies",
        "search",
        "selection",
        "testing",
        "uncertainty",
        "weighting",
    }
)


def __getattr__(name: str) -> Any:
    """Import a public name, or a public package, when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("taskmix")
    if name in _ROOMS:
        return import_module(f"taskmix.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'taskmix' has no attribute {name!r}")
    module, _, called = _PLACES.get(name, "taskmix.policies").partition(":")
    public = getattr(import_module(module), called or name)
    globals()[name] = public
    return public


def __dir__() -> list[str]:
    return sorted(__all__)
