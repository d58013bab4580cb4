"""The report of a tuning: what each run was predicted to reach, and what it reached."""

from pathlib import Path

from taskmix.report import figures
from taskmix.report.document import Caption, Plot, document, legend, table, write_page
from taskmix.report.figures.comparison import LOSS_BANDS, SCORE_BANDS, SHARE_PANELS
from taskmix.report.run_data import read_run
from taskmix.report.style import contestant_looks, looks, plotly
from taskmix.studies.paired import LOSSES
from taskmix.studies.tune import read_tuning
from taskmix.training.folder import REPORT

CURVES = "The objective of each run, or its mean over the tasks if it names none."


def write_tuning_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a tuning; return its path."""
    plotly()
    tuning = read_tuning(folder)
    runs = {run.name: [read_run(path).history for path in run.folders] for run in tuning.runs}
    tasks, unit = tuning.runs[0].scored[0].tasks, tuning.unit
    heading = (LOSS_BANDS if unit is LOSSES else SCORE_BANDS).heading
    body: list[str | Plot] = [
        *map(table, tuning.tables()),
        legend(contestant_looks(runs)),
        Plot(Caption(heading, CURVES), figures.score_bands(runs, unit)),
        legend(looks(tasks)),
        Plot(SHARE_PANELS, panels=figures.share_panels(runs)),
    ]
    lead = f"learned mixtures of {len(tasks)} tasks"
    page = document(folder.resolve().name, lead, tuning.verdict(), body)
    return write_page(folder / REPORT, page)
