"""AutoSeM (Guo, Pasunuru and Bansal 2019): which tasks help a primary task, and in what ratio."""

from taskmix.studies.autosem.final import FinalRun
from taskmix.studies.autosem.pipeline import AutosemResult, autosem
from taskmix.studies.autosem.search import Search, Tried
from taskmix.studies.autosem.selection import SelectedTasks
from taskmix.studies.autosem.settings import AutosemSettings
from taskmix.studies.autosem.spent import StageCost

__all__ = [
    "AutosemResult",
    "AutosemSettings",
    "FinalRun",
    "Search",
    "SelectedTasks",
    "StageCost",
    "Tried",
    "autosem",
]
