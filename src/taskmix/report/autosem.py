"""The report of an AutoSeM study: which candidates help, in what ratio, and the evidence."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import mean

from taskmix.report import figures
from taskmix.report.document import Plot, document, folded, table, with_legend, write_page
from taskmix.report.figures.autosem import MIN_TRIALS, RATIO_MAP, UTILITIES, search_caption
from taskmix.report.style import looks, plotly
from taskmix.studies.autosem import AutosemResult
from taskmix.studies.autosem.search import ratio_text
from taskmix.studies.paired import LOSSES
from taskmix.tables import Column, Row, Table
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
        *map(table, _final_values(result)),
        *map(table, result.utilities_tables()),
        *_plots(result),
        folded("Every trial", table(result.trials_table())),
        folded("The final runs", table(result.finals_table())),
        folded("Cost", table(result.spent_table())),
    ]


def _final_values(result: AutosemResult) -> list[Table]:
    """Return the objective of the final trainings, a row for each ratio; none if there are none."""
    by_ratio: dict[str, dict[int, float]] = {}
    for run in result.runs:
        by_ratio.setdefault(ratio_text(run.ratio), {})[run.seed] = run.value
    seeds = sorted({run.seed for run in result.runs})
    headings = ["mean", *(f"seed {seed}" for seed in seeds)]
    columns = [Column("ratio " + ":".join(result.search.space.tasks)), *map(Column, headings)]
    measure = "Loss" if result.unit is LOSSES else "Objective"
    rows: list[Row] = [
        [ratio, *(_level(result, value) for value in (mean(of.values()), *map(of.get, seeds)))]
        for ratio, of in by_ratio.items()
    ]
    return [Table(columns, rows, f"{measure} of the final trainings")] if rows else []


def _level(result: AutosemResult, value: float | None) -> str | None:
    if value is None:
        return None
    return result.unit.level(value) if math.isfinite(value) else "diverged"


def _plots(result: AutosemResult) -> list[str | Plot]:
    # A training that diverged has no value to draw.
    search = replace(result.search, tried=[t for t in result.search.tried if not t.diverged])
    made: list[str | Plot] = []
    # The utilities of tasks that had no round are those of the prior.
    if measured := [utility for utility in result.selection.utilities if utility.pulls]:
        plot = Plot(UTILITIES, figures.utilities(measured))
        made += with_legend(looks(utility.task for utility in measured), plot)
    made.append(Plot(search_caption(result.unit), figures.search_history(search, result.unit)))
    if len(search.tried) >= MIN_TRIALS:
        made.append(Plot(RATIO_MAP, panels=figures.ratio_map(search, result.unit)))
    return made
