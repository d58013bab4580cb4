"""A run that may still grow, as the live page shows it: its journal, thinned to a fixed size."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.config import label
from taskmix.families import FAMILIES
from taskmix.journal import Diagnostics, Evaluation, Extended, Opening, Shares, Tail
from taskmix.records import Record, UnitRecord
from taskmix.report.why import MAX_EVENTS, changes
from taskmix.studies.compare import is_diverged
from taskmix.training.folder import JOURNAL, SCORES

MAX_BINS = 400  # of a curve
MAX_CURVE_BINS = 40_000  # of the curves of all tasks; with many tasks each gets fewer
MIN_BINS = 20
MIN_SHARES, MAX_SHARES = 6, 60  # points of the curves of what was drawn
DRAWS_IN_SHARE = 40  # shares of fewer draws are mostly noise
MAX_EVALUATIONS = 400
MAX_NAME = 60  # characters of a decider
GLIMPSE_BYTES = 1 << 16
Array = NDArray[np.float64]


class GrowingRun:
    """Reads a journal piece by piece and keeps its curves in bins of equally many steps.

    When the bins are used up, neighbours are merged, so the memory does not grow with the run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opening: Opening | None = None
        self._tail = Tail(folder / JOURNAL)
        self._lock = Lock()
        self._reset([])

    def _reset(self, tasks: list[str]) -> None:
        self.step = 0
        self._tasks = {task: place for place, task in enumerate(tasks)}
        self._width = 1  # steps in a bin
        self._count = bins_of(len(tasks))
        self._bins = np.zeros((4, self._count, len(tasks)))
        # Views: examples drawn, sums and counts of losses, and the distribution asked for.
        self._drawn, self._losses, self._counts, self._asked = self._bins
        self._shares = np.full(len(tasks), np.nan)
        self.evaluations: list[Evaluation] = []
        self.events: list[str] = []
        self._beliefs: Mapping[str, Any] = {}

    @property
    def position(self) -> int:
        """The length in bytes of what was read; clients send it back to ask for news."""
        return self._tail.position

    def read(self, seconds: float) -> bool:
        """Read on for some time; return whether the end was reached."""
        end = time.monotonic() + seconds
        with self._lock:
            for record in self._tail.records():
                self._add(record)
                if time.monotonic() > end:
                    return False
        return True

    def _add(self, record: Record) -> None:
        match record:
            case Opening():
                self.opening = record
                self._reset(record.tasks)
            case Extended(budget=budget) if self.opening is not None:
                self.opening.budget.update(budget)
            case Shares(shares=shares):
                self._shares = np.array(shares)
            case UnitRecord():
                self._add_unit(record)
            case Evaluation():
                self.evaluations.append(record)
                if len(self.evaluations) > MAX_EVALUATIONS:
                    del self.evaluations[1:-1:2]
            case Diagnostics(values=values):
                self._add_beliefs(record.step, values)

    def _add_unit(self, record: UnitRecord) -> None:
        self.step = record.step
        while (place := max(0, record.step - 1) // self._width) >= self._count:
            self._merge()
        for task, share in record.shares().items():
            self._drawn[place, self._tasks[task]] += share
        for task, loss in record.training_losses().items():
            self._losses[place, self._tasks[task]] += loss
            self._counts[place, self._tasks[task]] += 1
        self._asked[place] = self._shares

    def _merge(self) -> None:
        half = self._count // 2
        sums, asked = self._bins[:3], self._bins[3]
        sums[:, :half] = sums[:, 0::2] + sums[:, 1::2]
        asked[:half] = asked[1::2]
        self._bins[:, half:] = 0
        self._width *= 2

    def _add_beliefs(self, step: int, values: Mapping[str, Any]) -> None:
        if self.opening is not None and self._beliefs:
            name = str(self.opening.decider.get("name"))
            news = changes(self.opening.family, name, self._beliefs, values)
            unit = FAMILIES[self.opening.family].unit.removesuffix("s").capitalize()
            self.events += [f"{unit} {step:,}: {sentence}." for sentence in news]
            del self.events[:-MAX_EVENTS]
        self._beliefs = values

    def data(self) -> dict[str, Any]:
        """Return the curves as plain values; missing ones are None."""
        with self._lock:
            used = 0 if self.step == 0 else (self.step - 1) // self._width + 1
            drawn, losses, counts, asked = self._bins[:, :used]
            steps = [min(self.step, (place + 1) * self._width) for place in range(used)]
            starts = self._share_starts(used)
            groups = np.add.reduceat(drawn, starts) if used else drawn
            return {
                "tasks": list(self._tasks),
                "steps": steps,
                "share_steps": [steps[place - 1] for place in (*starts[1:], used) if used],
                "drawn": _plain(_ratio(groups, groups.sum(axis=1, keepdims=True)).T),
                "asked": _plain(asked.T),
                "losses": _plain(_ratio(losses, counts).T),
                "evaluations": [
                    {
                        "step": evaluation.step,
                        "score": evaluation.score,
                        "objective": evaluation.objective,
                        "scores": evaluation.scores,
                    }
                    for evaluation in self.evaluations
                ],
                "events": list(self.events),
            }

    def _share_starts(self, used: int) -> list[int]:
        """Return the first bins of equal groups, in which the shares of the draws are counted."""
        groups = max(MIN_SHARES, min(MAX_SHARES, self.step // DRAWS_IN_SHARE))
        return (
            [group * used // groups for group in range(groups)] if used > groups else [*range(used)]
        )


def bins_of(tasks: int) -> int:
    """Return the bins of each task's curves, an even number.

    >>> bins_of(5), bins_of(1001), bins_of(100_000)
    (400, 38, 20)
    """
    return max(MIN_BINS, min(MAX_BINS, MAX_CURVE_BINS // max(1, tasks) // 2 * 2))


def glimpse(folder: Path) -> dict[str, Any]:
    """Return a line of the list of runs, from both ends of a journal: however long it is."""
    tail = Tail(folder / JOURNAL)
    return _summary(folder, tail.skip_to(GLIMPSE_BYTES), list(tail.records()))


def _summary(folder: Path, opening: Opening | None, records: Sequence[Record]) -> dict[str, Any]:
    decider = {} if opening is None else opening.decider
    name = label(decider) if "name" in decider else ""
    budget = {} if opening is None else opening.budget
    family = None if opening is None else FAMILIES.get(opening.family)
    evaluations = [record for record in records if isinstance(record, Evaluation)]
    steps = [record.step for record in records if isinstance(record, UnitRecord)]
    return {
        "decider": name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…",
        "step": max(steps, default=0),
        "total": budget.get(family.unit) if family else None,
        "score": evaluations[-1].score if evaluations else None,
        "value": evaluations[-1].objective if evaluations else None,
        "objective": None if opening is None else opening.objective,
        "measure": "score" if opening is None else opening.measure,
        "counts": "steps" if opening is None else opening.count,
        "finished": (folder / SCORES).exists(),
        "diverged": is_diverged(folder),
    }


def _ratio(sums: Array, counts: Array) -> Array:
    ratio: Array = np.full(sums.shape, np.nan)
    np.divide(sums, counts, out=ratio, where=counts > 0)
    return ratio


def _plain(values: Array) -> list[list[float | None]]:
    """Return values of four digits; NaN, which JSON does not have, becomes None."""
    magnitudes = np.log10(np.abs(values), out=np.zeros_like(values), where=values != 0)
    tens = 10.0 ** (3 - np.floor(magnitudes))
    rounded = np.round(values * tens) / tens
    plain = rounded.astype(object)
    plain[np.isnan(rounded)] = None
    rows: list[list[float | None]] = plain.tolist()
    return rows
