"""The reports of a run and of a comparison: one HTML file each, which opens offline."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from taskmix.errors import UserError, unknown
from taskmix.report.alone import read_alone
from taskmix.report.autosem import write_autosem_report
from taskmix.report.comparison_body import Runs, comparison_body
from taskmix.report.document import document, write_page
from taskmix.report.run_body import run_body, run_verdict
from taskmix.report.run_data import RunData, read_run
from taskmix.report.style import plotly
from taskmix.report.tuning import write_tuning_report
from taskmix.studies.autosem.result import RESULT, read_result
from taskmix.studies.contestants import ALONE
from taskmix.studies.looks import read_looks
from taskmix.studies.tune import SETTINGS
from taskmix.training.folder import JOURNAL, REPORT

log = logging.getLogger(__name__)
UNIFORM = "random"
"""The contestant that others are compared with unless the user names one."""
MAX_LISTED = 8
"""Names in a heading; of more, their number."""


def write_run_report(folder: Path) -> Path:
    """Write `report.html` into a run folder, finished or not; return its path."""
    plotly()
    run = read_run(Path(folder))
    lead = f"{run.policy} on {_listed(run.history.tasks, 'tasks')}"
    page = document(run.history.opening.name, lead, run_verdict(run), run_body(run))
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
    return _write_comparison(read, Path(out), title, baseline)


def _write_comparison(runs: Runs, out: Path, title: str, baseline: str | None) -> Path:
    tasks = _common_tasks(runs)
    against = baseline if baseline is not None else next(iter(runs))
    if against not in runs:
        raise unknown("contestant", against, runs, "baseline")
    lead = f"{_listed(list(runs), 'contestants')} on {_listed(tasks, 'tasks')}"
    verdict, body = comparison_body(runs, against, out)
    return write_page(out / REPORT, document(title, lead, verdict, body))


def write_report(folder: Path | str, baseline: str | None = None) -> Path:
    """Write the report of a run folder, or of a study, as `taskmix report` does; return its path.

    A study is one of AutoSeM, a tuning, or all runs below a folder, by decider.

    Args:
        folder: the folder of the run or study, or the run's journal.
        baseline: in a comparison, the decider that the others are compared with; if None, `random`
            where it is one of them, else the first.
    """
    folder = Path(folder)
    if folder.name == JOURNAL and folder.is_file():
        folder = folder.parent
    if (folder / JOURNAL).exists():
        return write_run_report(folder)
    if (folder / RESULT).exists():
        return write_autosem_report(read_result(folder), folder)
    if (folder / SETTINGS).exists():
        return write_tuning_report(folder)
    plotly()
    runs: dict[str, list[RunData]] = {}
    for journal in sorted([*folder.glob(f"*/{JOURNAL}"), *folder.glob(f"*/*/{JOURNAL}")]):
        try:
            run = read_run(journal.parent)
        except UserError as error:
            log.warning("%s; left out", error)
            continue
        runs.setdefault(run.policy, []).append(run)
    if alone := read_alone(folder):
        runs[ALONE] = alone
    if not runs:
        raise UserError(
            f"{folder}: expected the folder of a run or of a study, found no {JOURNAL} in it or "
            "below it"
        )
    if baseline is None:
        baseline = UNIFORM if UNIFORM in runs else next(iter(runs))
    ordered = {name: runs[name] for name in sorted(runs, key=_order(folder, baseline))}
    return _write_comparison(ordered, folder, folder.resolve().name, baseline)


def _order(folder: Path, baseline: str) -> Callable[[str], tuple[bool, int]]:
    """Return the key that sorts contestants: the baseline, then in the order of the looks."""
    places = {name: place for place, name in enumerate(read_looks(folder))}
    return lambda name: (name != baseline, places.get(name, len(places)))


def _listed(names: Sequence[str], plural: str) -> str:
    return ", ".join(names) if len(names) <= MAX_LISTED else f"{len(names)} {plural}"


def _common_tasks(runs: Runs) -> list[str]:
    first, *others = [run for seeds in runs.values() for run in seeds]
    for run in others:
        if run.history.tasks != first.history.tasks:
            raise UserError(
                f"{run.path}: expected the tasks {first.history.tasks} of {first.path}, "
                f"found {run.history.tasks}"
            )
    return first.history.tasks
