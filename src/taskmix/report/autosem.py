"""The report of an AutoSeM study: which candidates help, in what ratio, and the evidence."""

from pathlib import Path

from taskmix.report import captions, figures
from taskmix.report.document import Plot, document, folded, notice, plots, table, tiles, write_page
from taskmix.report.figures.ratio_map import LEAST
from taskmix.report.figures.search_history import ratio_words
from taskmix.report.numbers import hundredths
from taskmix.report.style import plotly
from taskmix.studies.autosem import AutosemResult


def write_autosem_report(result: AutosemResult, folder: Path) -> Path:
    """Write `report.html` into a study's folder; return its path.

    Args:
        result: of the study.
        folder: of the study.
    """
    plotly()
    tasks = ", ".join(result.search.space.tasks)
    page = document(f"AutoSeM for {result.primary}", f"mixing {tasks}", autosem_body(result))
    return write_page(folder / "report.html", page)


def autosem_body(result: AutosemResult) -> list[str]:
    """Return the parts of the page: the verdict, the models, the price, the evidence.

    Args:
        result: of the study.
    """
    return [
        notice(result.verdict()),
        tiles({f"seed {run.seed}": hundredths(run.value) for run in result.finals}),
        _spent_table(result),
        *([_utilities_table(result)] if result.selection.utilities else []),
        *plots(_plots(result)),
        folded("Every trial", _trials_table(result)),
        folded("The final runs", _finals_table(result)),
    ]


def _plots(result: AutosemResult) -> list[Plot]:
    made = []
    if result.selection.utilities:
        made.append(Plot(captions.UTILITIES, figures.utilities(result.selection.utilities)))
    made.append(Plot(captions.SEARCH_HISTORY, figures.search_history(result.search)))
    if len(result.search.tried) >= LEAST:
        made.append(Plot(captions.RATIO_MAP, figures.ratio_map(result.search)))
    return made


def _spent_table(result: AutosemResult) -> str:
    rows = [
        [stage, f"{cost.steps:,}", f"{cost.forward:,}", f"{cost.backward:,}"]
        for stage, cost in result.spent.items()
    ]
    return table(["stage", "steps", "examples forward", "examples backward"], rows)


def _utilities_table(result: AutosemResult) -> str:
    chosen = result.selection.auxiliaries
    rows = [
        [
            each.task,
            f"{each.mean:.2f}",
            f"{each.low:.2f} to {each.high:.2f}",
            str(each.pulls),
            "primary" if each.task == result.primary else "yes" if each.task in chosen else "no",
        ]
        for each in result.selection.utilities
    ]
    return table(["task", "utility", "95% credible interval", "rounds", "selected"], rows)


def _trials_table(result: AutosemResult) -> str:
    rows = [
        [
            str(each.number),
            ratio_words(each),
            hundredths(each.value),
            f"{each.spent.steps:,}",
            "pruned" if each.pruned else "",
        ]
        for each in result.search.ranked()
    ]
    ratio = "ratio " + ":".join(result.search.space.tasks)
    return table(["trial", ratio, "objective", "steps", ""], rows)


def _finals_table(result: AutosemResult) -> str:
    rows = [
        [str(run.seed), hundredths(run.value), f"{run.spent.steps:,}", str(run.folder)]
        for run in result.finals
    ]
    return table(["seed", "objective", "steps", "folder"], rows)
