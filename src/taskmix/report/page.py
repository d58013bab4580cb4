"""The reports of a run and of a comparison: one HTML file each, which opens offline."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from taskmix.errors import UserError, unknown
from taskmix.report.comparison_body import Runs, comparison_body
from taskmix.report.document import document, write_page
from taskmix.report.run_body import run_body
from taskmix.report.run_data import read_run
from taskmix.report.style import plotly
from taskmix.training.folder import JOURNAL, REPORT


def write_run_report(folder: Path) -> Path:
    """Write `report.html` into a run folder, finished or not; return its path."""
    plotly()
    run = read_run(Path(folder))
    lead = f"{run.policy} on {', '.join(run.history.tasks)}"
    page = document(run.history.opening.name, lead, run_body(run))
    return write_page(run.path / REPORT, page)


def write_comparison_report(
    runs: Mapping[str, Sequence[Path]], out: Path, title: str, baseline: str | None = None
) -> Path:
    """Write `report.html` into `out`, comparing policies over seeds; return its path.

    Args:
        runs: by policy, the run folders of its seeds.
        out: the folder of the report.
        title: its heading.
        baseline: the policy that the others are compared with; the first if None.
    """
    plotly()
    if not runs or not all(runs.values()):
        raise UserError(f"runs: expected run folders for each policy, found {dict(runs)}")
    read = {name: [read_run(Path(path)) for path in paths] for name, paths in runs.items()}
    tasks = _common_tasks(read)
    against = baseline if baseline is not None else next(iter(read))
    if against not in read:
        raise unknown("contestant", against, read, "baseline")
    lead = f"{', '.join(read)} on {', '.join(tasks)}"
    page = document(title, lead, comparison_body(read, against))
    return write_page(Path(out) / REPORT, page)


def write_report(folder: Path, baseline: str | None = None) -> Path:
    """Write the report of a run folder, or of a study: all runs below a folder, by decider.

    Args:
        folder: of the run or study.
        baseline: in a study, the decider that the others are compared with; the first if None.
    """
    if (folder / JOURNAL).exists():
        return write_run_report(folder)
    runs: dict[str, list[Path]] = {}
    for journal in sorted([*folder.glob(f"*/{JOURNAL}"), *folder.glob(f"*/*/{JOURNAL}")]):
        runs.setdefault(read_run(journal.parent).policy, []).append(journal.parent)
    if not runs:
        raise UserError(
            f"{folder}: expected the folder of a run or of a study, found no {JOURNAL} in it or "
            "below it"
        )
    return write_comparison_report(runs, folder, folder.resolve().name, baseline)


def _common_tasks(runs: Runs) -> list[str]:
    first, *others = [run for seeds in runs.values() for run in seeds]
    for run in others:
        if run.history.tasks != first.history.tasks:
            raise UserError(
                f"{run.path}: expected the tasks {first.history.tasks} of {first.path}, "
                f"found {run.history.tasks}"
            )
    return first.history.tasks
