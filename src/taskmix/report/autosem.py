"""The report of an AutoSeM study: which candidates help, in what ratio, and the evidence."""

import math
from dataclasses import replace
from pathlib import Path

from taskmix.policies import Utility
from taskmix.report import figures
from taskmix.report.document import Plot, document, folded, legend, table, tiles, write_page
from taskmix.report.figures.autosem import MIN_TRIALS, RATIO_MAP, SEARCH_HISTORY, UTILITIES
from taskmix.report.style import looks, plotly
from taskmix.studies.autosem import AutosemResult
from taskmix.training.folder import REPORT


def write_autosem_report(result: AutosemResult, folder: Path) -> Path:
    """Write `report.html` into a study's folder; return its path."""
    plotly()
    tasks = ", ".join(result.search.space.tasks)
    title, lead = f"AutoSeM for {result.primary}", f"mixing {tasks}"
    page = document(title, lead, result.verdict(), _body(result))
    return write_page(folder / REPORT, page)


def _body(result: AutosemResult) -> list[str | Plot]:
    return [
        tiles({f"objective, seed {run.seed}": _level(result, run.value) for run in result.finals}),
        table(result.spent_table()),
        *map(table, result.utilities_tables()),
        legend(looks(utility.task for utility in _measured(result))),
        *_plots(result),
        folded("Every trial", table(result.trials_table())),
        folded("The final runs", table(result.finals_table())),
    ]


def _level(result: AutosemResult, value: float) -> str:
    return result.unit.level(value) if math.isfinite(value) else "diverged"


def _measured(result: AutosemResult) -> list[Utility]:
    """Return the utilities without those of tasks that had no round, which are the prior's."""
    return [utility for utility in result.selection.utilities if utility.pulls]


def _plots(result: AutosemResult) -> list[Plot]:
    # A training that diverged has no value to draw.
    search = replace(result.search, tried=[t for t in result.search.tried if not t.diverged])
    made = []
    if measured := _measured(result):
        made.append(Plot(UTILITIES, figures.utilities(measured)))
    made.append(Plot(SEARCH_HISTORY, figures.search_history(search, result.unit)))
    if len(search.tried) >= MIN_TRIALS:
        made.append(Plot(RATIO_MAP, panels=figures.ratio_map(search, result.unit)))
    return made
