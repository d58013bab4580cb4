"""What the report of a comparison shows."""

from collections.abc import Mapping, Sequence

from taskmix.config import Objective
from taskmix.report import figures
from taskmix.report.document import Caption, Plot, folded, notice, plots, table, verbatim
from taskmix.report.figures.comparison import DIFFERENCES, LOSS_BANDS, SCORE_BANDS
from taskmix.report.run_data import RunData
from taskmix.studies.compare import Comparison, unit_of
from taskmix.studies.paired import LOSSES
from taskmix.tables import Column, Table

Runs = Mapping[str, Sequence[RunData]]


def comparison_body(runs: Runs, baseline: str) -> list[str]:
    """Return the tables first, then the figures, then every run and the configuration."""
    config = next(iter(runs.values()))[0].config
    return [
        *_how_far(runs),
        *_scores(runs, baseline),
        folded("Every run", table(_runs_table(runs))),
        *([folded("Configuration of the first run", verbatim(config))] if config else []),
    ]


def _how_far(runs: Runs) -> list[str]:
    finished = [run.finished for seeds in runs.values() for run in seeds]
    if all(finished):
        return []
    return [
        notice(
            f"{sum(finished)} of {len(finished)} runs are finished; the others count with their "
            "best scores so far, or not at all where there are none."
        )
    ]


def _scores(runs: Runs, baseline: str) -> list[str]:
    """Return the tables and figures of the runs that have been scored."""
    objective = runs[baseline][0].objective
    scored = _comparison(runs, baseline, objective)
    if not scored.runs:
        return []
    unit = scored.unit
    histories = {
        name: [run.history for run in runs[name] if run.history.evaluations] for name in scored.runs
    }
    bands = LOSS_BANDS if unit is LOSSES else SCORE_BANDS
    made = [Plot(bands, figures.score_bands(histories, unit))]
    tables = [scored.scores_table()]
    # A run that is not finished has not had the same budget.
    done = {name: [run for run in seeds if run.finished] for name, seeds in runs.items()}
    finished = _comparison(done, baseline, objective)
    if baseline in finished.runs and finished.differences():
        tables += finished.differences_tables()
        drawing = figures.differences(finished.all_differences(), list(runs), baseline, unit)
        made.insert(0, Plot(Caption(f"Differences to {baseline}", DIFFERENCES), drawing))
    return [*map(table, tables), *plots(made)]


def _comparison(runs: Runs, baseline: str, objective: Objective | None) -> Comparison:
    """Return the comparison of the runs that have been scored."""
    scored = {
        name: [(run, run.result) for run in seeds if run.result] for name, seeds in runs.items()
    }
    scored = {name: seeds for name, seeds in scored.items() if seeds}
    return Comparison(
        {name: [result for _, result in seeds] for name, seeds in scored.items()},
        {name: [run.path for run, _ in seeds] for name, seeds in scored.items()},
        baseline,
        objective,
        {name: [run.history.opening.seed for run, _ in seeds] for name, seeds in scored.items()},
    )


def _family(runs: Runs) -> str:
    """Return the word for all deciders together."""
    keys = {run.history.family.key for seeds in runs.values() for run in seeds}
    return keys.pop() if len(keys) == 1 else "decider"


def _runs_table(runs: Runs) -> Table:
    unit = unit_of(next(iter(runs.values()))[0].objective)
    by_loss = unit is LOSSES
    columns = [
        Column(_family(runs)),
        Column("seed"),
        Column("loss" if by_loss else "score", unit.level),
        Column("kept from"),
        Column("finished"),
        Column("folder", left=True),
    ]
    rows = []
    for name, seeds in runs.items():
        for run in seeds:
            result = run.result
            score = None if result is None else result.objective if by_loss else result.score
            kept = None if result is None else f"{run.history.unit} {result.step:,}"
            done = "yes" if run.finished else "no"
            seed = str(run.history.opening.seed)
            rows.append([name, seed, score, kept, done, str(run.path)])
    return Table(columns, rows)
