"""What the report of a comparison shows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import mean

import numpy as np

from taskmix.report import captions, figures
from taskmix.report.curves import Floats
from taskmix.report.document import Plot, folded, notice, plots, table, verbatim
from taskmix.report.figures.differences import Row
from taskmix.report.folder import Folder
from taskmix.report.numbers import UNKNOWN
from taskmix.report.standing import Standing
from taskmix.studies.compare import unit_of
from taskmix.studies.paired import LOSSES, Unit, differences, how_tested, interval_words, p_words

Runs = Mapping[str, Sequence[Folder]]


def comparison_body(runs: Runs, baseline: str) -> list[str]:
    """The table of deciders first, then the figures, then every run and the configuration.

    Args:
        runs: by decider, its run folders.
        baseline: the decider that the others are compared with.
    """
    config = next(iter(runs.values()))[0].config
    return [
        *_how_far(runs),
        *_scores(runs, baseline),
        folded("Every run", _runs_table(runs)),
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
    """Return the table and the figures of what has been scored."""
    stand = {name: [run.standing for run in seeds if run.standing] for name, seeds in runs.items()}
    stand = {name: seeds for name, seeds in stand.items() if seeds}
    if not stand:
        return []
    unit = unit_of(runs[baseline][0].objective)
    histories = {
        name: [run.history for run in runs[name] if run.history.evaluations] for name in stand
    }
    first = [_deciders_table(stand, _family(runs), unit)]
    bands = captions.LOSS_BANDS if unit is LOSSES else captions.SCORE_BANDS
    made = [Plot(bands, figures.score_bands(histories, unit))]
    if rows := _differences(runs, baseline):
        first.append(_differences_table(rows, baseline, unit))
        heading = f"Differences to {baseline}"
        caption = f"{captions.DIFFERENCES} {how_tested(rows[0].found)}"
        drawing = figures.differences(rows, list(runs), baseline, unit)
        made.insert(0, Plot(captions.Caption(heading, caption), drawing))
    return [*first, *plots(made)]


def _differences(runs: Runs, baseline: str) -> list[Row]:
    """Return the differences to the baseline over finished runs; none if nobody can be compared.

    The first row is what the deciders are judged by, the others are the tasks.
    """
    objective, tasks = runs[baseline][0].objective, runs[baseline][0].history.tasks
    unit = unit_of(objective)
    stands = {
        name: {run.history.opening.seed: run.standing for run in seeds if run.finished}
        for name, seeds in runs.items()
    }

    def row(name: str, value: Callable[[Standing], float]) -> Row:
        scores = {
            policy: {seed: value(stand) for seed, stand in by_seed.items() if stand}
            for policy, by_seed in stands.items()
        }
        return Row(name, differences(scores, baseline))

    judged = row("mean", lambda stand: stand.score)
    if objective is not None:
        judged = row(
            objective.words,
            lambda stand: stand.score if stand.objective is None else stand.objective,
        )
    return [judged, *(row(t, partial(_on, t, unit)) for t in tasks)] if judged.found else []


def _on(task: str, unit: Unit, stand: Standing) -> float:
    return -stand.losses[task] if unit is LOSSES else stand.scores[task]


def _differences_table(rows: Sequence[Row], baseline: str, unit: Unit) -> str:
    judged, *tasks = rows
    head = [f"{unit.better} {baseline}", *(row.name for row in tasks), judged.name, "p", "seeds"]
    cells = [
        [
            name,
            *(interval_words(row.found[name], unit) for row in (*tasks, judged)),
            p_words(each),
            str(each.seeds),
        ]
        for name, each in judged.found.items()
    ]
    told = {(k, len(tasks) + 2) for k, each in enumerate(judged.found.values()) if each.significant}
    return table(head, cells, told)


def by_task(standings: Sequence[Standing], tasks: Sequence[str], unit: Unit) -> Floats:
    """What each run came to by seed and task, and in all at last, shape `(seeds, tasks + 1)`.

    In all is the mean score over the tasks, or the objective where that is a loss.
    """
    return np.array(
        [[*(_on(task, unit, run) for task in tasks), _in_all(unit, run)] for run in standings],
        dtype=np.float64,
    )


def _in_all(unit: Unit, stand: Standing) -> float:
    if unit is LOSSES:
        return np.nan if stand.objective is None else stand.objective
    return stand.score


def _family(runs: Runs) -> str:
    """Return what the deciders are, all together."""
    keys = {run.history.family.key for seeds in runs.values() for run in seeds}
    return keys.pop() if len(keys) == 1 else "decider"


def _deciders_table(stand: Mapping[str, Sequence[Standing]], family: str, unit: Unit) -> str:
    tasks = list(next(iter(stand.values()))[0].scores)
    means = np.array([by_task(seeds, tasks, unit).mean(axis=0) for seeds in stand.values()])
    in_all = "objective, loss" if unit is LOSSES else "mean"
    head = [family, *tasks, in_all, "lowest to highest seed", "seeds"]
    head += ["examples forward", "examples backward"]
    rows = [
        [
            name,
            *(unit.level(value) for value in row),
            unit.range([_in_all(unit, run) for run in seeds]),
            str(len(seeds)),
            f"{mean(run.forward for run in seeds):,.0f}",
            f"{mean(run.backward for run in seeds):,.0f}",
        ]
        for (name, seeds), row in zip(stand.items(), means, strict=True)
    ]
    best = {(int(row), column) for column, row in enumerate(means.argmax(axis=0), 1)}
    return table(head, rows, best)


def _runs_table(runs: Runs) -> str:
    unit = unit_of(next(iter(runs.values()))[0].objective)
    rows = [
        [
            name,
            str(run.history.opening.seed),
            unit.level(_in_all(unit, run.standing)) if run.standing else UNKNOWN,
            f"{run.history.unit} {run.standing.step:,}" if run.standing else UNKNOWN,
            "yes" if run.finished else "no",
            str(run.path),
        ]
        for name, seeds in runs.items()
        for run in seeds
    ]
    what = "loss" if unit is LOSSES else "score"
    return table([_family(runs), "seed", what, "kept from", "finished", "folder"], rows)
