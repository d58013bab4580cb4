"""What the report of a comparison shows."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np

from taskmix.config import Objective
from taskmix.report import figures
from taskmix.report.document import Caption, Plot, folded, notice, table, verbatim, with_legend
from taskmix.report.figures.comparison import DIFFERENCES, bands_caption, shares_caption
from taskmix.report.history import Exposure, exposures
from taskmix.report.rollouts import has_rewards, reward_table
from taskmix.report.run_data import RunData
from taskmix.report.style import contestant_looks, looks
from taskmix.studies.comparison import Comparison, unit_of
from taskmix.studies.looks import read_looks
from taskmix.studies.paired import LOSSES
from taskmix.studies.verdict import (
    MIN_TASKS,
    BootstrapEstimate,
    interquartile_mean,
    probability_of_improvement,
)
from taskmix.tables import Column, Table, TableCell, Value, duration
from taskmix.training.folder import REPORT

MAX_ROWS = 12
"""Tasks up to which a table that repeats a figure is shown at once."""

Runs = Mapping[str, Sequence[RunData]]


def comparison_body(runs: Runs, baseline: str, out: Path) -> tuple[str, list[str | Plot]]:
    """Return the verdict, and the page below it: scores, mixtures, every run, the configuration."""
    objective = runs[baseline][0].objective
    scored = _comparison(runs, baseline, objective, out)
    # A run that is not finished has not had the same budget.
    done = {name: [run for run in seeds if run.finished] for name, seeds in runs.items()}
    finished = _comparison(done, baseline, objective, out)
    compared = baseline in finished.runs and bool(finished.differences())
    verdict = finished.verdict().sentence if compared else _no_verdict(runs)
    config = runs[baseline][0].config
    return verdict, [
        *_how_far(runs),
        *([table(reward_table(runs))] if _all_rewarded(runs) else []),
        *(_scores(runs, scored, finished if compared else None) if scored.runs else []),
        *_mixtures(runs),
        folded("Every run", table(_runs_table(runs, out))),
        *([folded("Configuration of the first run", verbatim(config))] if config else []),
    ]


def _no_verdict(runs: Runs) -> str:
    if len(runs) == 1:
        return f"There is no other contestant to compare {next(iter(runs))} with."
    if not any(run.result for seeds in runs.values() for run in seeds):
        found = ", only rewards of training prompts" if _all_rewarded(runs) else ""
        return f"No verdict: the journals have no scores{found}."
    return "No verdict yet: it needs finished runs of two contestants with the same seeds."


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


def _all_rewarded(runs: Runs) -> bool:
    return all(has_rewards(run.history) for seeds in runs.values() for run in seeds)


def _scores(runs: Runs, scored: Comparison, finished: Comparison | None) -> list[str | Plot]:
    """Return the tables and figures of the runs that have been scored."""
    unit = scored.unit
    histories = {
        name: [run.history for run in runs[name] if run.history.evaluations] for name in scored.runs
    }
    seeds = max(map(len, histories.values()))
    bands = Plot(bands_caption(scored.objective, seeds), figures.score_bands(histories, unit))
    levels, styles = table(scored.scores_table()), contestant_looks(runs)
    if finished is None:
        return [levels, *with_legend(styles, bands)]
    baseline = str(finished.baseline)
    drawing = figures.differences(finished.all_differences(), list(runs), baseline, unit)
    return [
        levels,
        *with_legend(
            styles,
            Plot(Caption(f"Differences to {baseline}", DIFFERENCES), drawing),
            *(_numbers(finished, replace(t, title="")) for t in finished.differences_tables()),
            bands,
        ),
        *map(table, [*finished.wins_tables(), *_description(finished)]),
    ]


def _numbers(finished: Comparison, numbers: Table) -> str:
    """Return the numbers of a figure, folded where the tasks are many."""
    shown = table(numbers)
    return shown if len(finished.tasks) <= MAX_ROWS else folded("Differences in numbers", shown)


def _description(finished: Comparison) -> list[Table]:
    """Return the probabilities of improvement; from five tasks on, the interquartile means too."""
    values = {
        name: np.array([finished.value(name, task) for task in finished.tasks]).T
        for name in finished.runs
    }
    if min(map(len, values.values())) < 2:
        return []
    baseline = str(finished.baseline)
    columns = [Column("contestant"), Column("probability of improvement")]
    rows: list[list[Value]] = []
    for name, of_name in values.items():
        better = probability_of_improvement(of_name, values[baseline])
        probability = _interval(better, [f"{end:.0%}" for end in _ends(better)])
        rows.append([name, probability if name != baseline else None])
    if len(finished.tasks) >= MIN_TASKS:
        columns.append(Column("interquartile mean"))
        for row, of_name in zip(rows, values.values(), strict=True):
            middle = interquartile_mean(of_name)
            row.append(_interval(middle, [*map(finished.unit.level, _ends(middle))]))
    middle_half = "Interquartile mean: the mean of the middle half of all scores. "
    note = (
        f"Probability of improvement: how often a run is better than a run of {baseline}, on a "
        f"task drawn at random. {middle_half if len(columns) > 2 else ''}95% intervals of a "
        "stratified bootstrap (Agarwal et al. 2021); they describe these runs and are not a test."
    )
    return [Table(columns, rows, "All tasks together", notes=(note,))]


def _ends(estimate: BootstrapEstimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _interval(estimate: BootstrapEstimate, texts: Sequence[str]) -> TableCell:
    middle, low, high = texts
    return TableCell(f"{middle} ({low} to {high})", estimate.value)


def _mixtures(runs: Runs) -> list[str | Plot]:
    """Return what each contestant gave to the tasks: over all, and over the run."""
    histories = {name: [run.history for run in seeds] for name, seeds in runs.items()}
    panels = figures.share_panels(histories)
    if not panels:
        return []
    tasks = next(iter(histories.values()))[0].tasks
    given = {
        name: [of_run for run in histories[name] if (of_run := exposures(run))] for name in panels
    }
    rows: list[list[Value]] = [
        [task, *(_given([of_run[task] for of_run in seeds]) for seeds in given.values())]
        for task in tasks
    ]
    columns = [Column("task"), *(Column(name) for name in panels)]
    note = "The part of the training that each task got, in brackets its epochs; means over seeds."
    mixture = Table(columns, rows, "Share of each task (epochs)", notes=(note,))
    figure = with_legend(looks(tasks), Plot(shares_caption(_family(runs)), panels=panels))
    if len(tasks) > MAX_ROWS:
        return [*figure, folded(mixture.title, table(replace(mixture, title="")))]
    return [table(mixture), *figure]


def _given(seeds: Sequence[Exposure]) -> TableCell | None:
    """Return the mean share of a task and its epochs; None before the first step."""
    if not seeds:
        return None
    share, epochs = mean(each.share for each in seeds), [each.epochs for each in seeds]
    known = [count for count in epochs if count is not None]
    if not known:
        return TableCell(f"{share:.1%}", share)
    return TableCell(f"{share:.1%} ({mean(known):.{1 if mean(known) >= 1 else 2}f})", share)


def _comparison(runs: Runs, baseline: str, objective: Objective | None, out: Path) -> Comparison:
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
        read_looks(out),
        {
            name: seeds_of
            for name, seeds in runs.items()
            if (seeds_of := [run.history.opening.seed for run in seeds if run.diverged])
        },
        {name: [run.history.seconds for run, _ in seeds] for name, seeds in scored.items()},
    )


def _family(runs: Runs) -> str:
    """Return the word for all deciders together."""
    keys = {run.history.family.key for seeds in runs.values() for run in seeds}
    return keys.pop() if len(keys) == 1 else "decider"


def _runs_table(runs: Runs, out: Path) -> Table:
    unit = unit_of(next(iter(runs.values()))[0].objective)
    by_loss = unit is LOSSES
    columns = [
        Column(_family(runs)),
        Column("seed"),
        Column("loss" if by_loss else "score", unit.level),
        Column("kept from"),
        Column("time", duration),
        Column("finished"),
        Column("folder", left=True),
    ]
    rows = []
    for name, seeds in runs.items():
        for run in seeds:
            result, history = run.result, run.history
            score = None if result is None else result.objective if by_loss else result.score
            kept = None if result is None else f"{history.unit} {result.step:,}"
            unfinished = "diverged" if run.diverged else "no"
            done = "yes" if run.finished else unfinished
            folder = os.path.relpath(run.path, out)
            page = f"{folder}/{REPORT}" if (run.path / REPORT).exists() else f"{folder}/"
            link = TableCell(folder, link=page)
            seconds = history.seconds or None
            rows.append([name, str(history.opening.seed), score, kept, seconds, done, link])
    return Table(columns, rows)
