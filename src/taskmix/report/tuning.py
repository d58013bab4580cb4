"""The report of a tuning: what each run was predicted to reach, and what it reached."""

from pathlib import Path

from taskmix.report import figures
from taskmix.report.document import Plot, document, table, with_legend, write_page
from taskmix.report.figures.comparison import bands_caption, shares_caption
from taskmix.report.run_data import read_run
from taskmix.report.style import contestant_looks, looks, plotly
from taskmix.studies.tune import read_tuning
from taskmix.training.folder import REPORT


def write_tuning_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a tuning; return its path."""
    plotly()
    tuning = read_tuning(folder)
    read = {run.name: [read_run(path) for path in run.folders] for run in tuning.runs}
    runs = {name: [run.history for run in of_name] for name, of_name in read.items()}
    tasks, unit = tuning.runs[0].scored[0].tasks, tuning.unit
    objective = next(iter(read.values()))[0].objective
    seeds = max(map(len, runs.values()))
    curves = Plot(bands_caption(objective, seeds), figures.score_bands(runs, unit))
    body: list[str | Plot] = [
        *map(table, tuning.tables()),
        *with_legend(contestant_looks(runs), curves),
        *with_legend(looks(tasks), Plot(shares_caption(), panels=figures.share_panels(runs))),
    ]
    lead = f"learned mixtures of {len(tasks)} tasks"
    page = document(folder.resolve().name, lead, tuning.verdict(), body)
    return write_page(folder / REPORT, page)
