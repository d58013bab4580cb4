"""AutoSeM (Guo, Pasunuru and Bansal 2019): the tasks that help a primary task, and their ratio."""

from taskmix.studies.autosem.pipeline import autosem
from taskmix.studies.autosem.result import AutosemResult, read_result
from taskmix.studies.autosem.search import Search, Tried
from taskmix.studies.autosem.settings import AutosemSettings, PlannedCost, StageCost
from taskmix.studies.autosem.stages import FinalRun, SelectedTasks

__all__ = [
    "AutosemResult",
    "AutosemSettings",
    "FinalRun",
    "PlannedCost",
    "Search",
    "SelectedTasks",
    "StageCost",
    "Tried",
    "autosem",
    "read_result",
]
