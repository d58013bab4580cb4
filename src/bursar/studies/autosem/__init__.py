"""AutoSeM (Guo, Pasunuru and Bansal 2019): which tasks help a primary task, and in what ratio."""

from bursar.studies.autosem.final import FinalRun
from bursar.studies.autosem.pipeline import AutosemResult, autosem
from bursar.studies.autosem.search import Search, Tried
from bursar.studies.autosem.selection import SelectedTasks
from bursar.studies.autosem.settings import AutosemSettings
from bursar.studies.autosem.spent import StageCost

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
