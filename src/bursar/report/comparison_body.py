"""What the report of a comparison shows."""

from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np

from bursar.report import captions, figures
from bursar.report.document import Plot, folded, notice, plots, table, verbatim
from bursar.report.figures.final_scores import by_task
from bursar.report.folder import Folder
from bursar.report.numbers import UNKNOWN, hundredths, span
from bursar.report.standing import Standing

Runs = Mapping[str, Sequence[Folder]]


def comparison_body(runs: Runs) -> list[str]:
    """The table of deciders first, then the figures, then every run and the configuration."""
    config = next(iter(runs.values()))[0].config
    return [
        *_how_far(runs),
        *_scores(runs),
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


def _scores(runs: Runs) -> list[str]:
    """Return the table and the figures of what has been scored."""
    stand = {name: [run.standing for run in seeds if run.standing] for name, seeds in runs.items()}
    stand = {name: seeds for name, seeds in stand.items() if seeds}
    if not stand:
        return []
    histories = {
        name: [run.history for run in runs[name] if run.history.evaluations] for name in stand
    }
    made = [
        Plot(captions.SCORE_BANDS, figures.score_bands(histories)),
        Plot(captions.FINAL_SCORES, figures.final_scores(stand)),
    ]
    return [_deciders_table(stand, _family(runs)), *plots(made)]


def _family(runs: Runs) -> str:
    """Return what the deciders are, all together."""
    keys = {run.history.family.key for seeds in runs.values() for run in seeds}
    return keys.pop() if len(keys) == 1 else "decider"


def _deciders_table(stand: Mapping[str, Sequence[Standing]], family: str) -> str:
    tasks = list(next(iter(stand.values()))[0].scores)
    means = np.array([by_task(seeds, tasks).mean(axis=0) for seeds in stand.values()])
    head = [family, *tasks, "mean", "lowest to highest seed", "seeds"]
    head += ["examples forward", "examples backward"]
    rows = [
        [
            name,
            *(hundredths(value) for value in row),
            span([run.score for run in seeds]),
            str(len(seeds)),
            f"{mean(run.forward for run in seeds):,.0f}",
            f"{mean(run.backward for run in seeds):,.0f}",
        ]
        for (name, seeds), row in zip(stand.items(), means, strict=True)
    ]
    best = {(int(row), column) for column, row in enumerate(means.argmax(axis=0), 1)}
    return table(head, rows, best)


def _runs_table(runs: Runs) -> str:
    rows = [
        [
            name,
            str(run.history.opening.seed),
            hundredths(run.standing.score) if run.standing else UNKNOWN,
            f"{run.history.unit} {run.standing.step:,}" if run.standing else UNKNOWN,
            "yes" if run.finished else "no",
            str(run.path),
        ]
        for name, seeds in runs.items()
        for run in seeds
    ]
    return table([_family(runs), "seed", "score", "kept from", "finished", "folder"], rows)
