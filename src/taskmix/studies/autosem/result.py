"""The result of an AutoSeM study: its verdict, its tables, and its file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from taskmix.errors import UserError, explain
from taskmix.policies import Utility
from taskmix.search import RatioSpace
from taskmix.search.ratios import Ratio
from taskmix.studies.autosem.search import Search, Tried, ratio_text
from taskmix.studies.autosem.settings import StageCost
from taskmix.studies.autosem.stages import FinalRun, SelectedTasks
from taskmix.studies.paired import LOSSES, SCORES, Difference, Unit, differences
from taskmix.studies.verdict import verdict
from taskmix.tables import Column, Row, Table, Tabled

RESULT = "autosem.json"
MAX_TRIALS = 10
"""Mixing ratios in a printed table; the report has all of them."""


@dataclass(frozen=True, repr=False)
class AutosemResult(Tabled):
    """The result of an AutoSeM study.

    Args:
        primary: the task that the others were to help.
        selection: the candidates that stage 1 selected.
        search: the ratios that were tried.
        runs: the final trainings, with the best ratio and with the primary alone.
        loss: whether the objective is the primary's loss, not its score.
        looks: the numbers of seeds at which the best ratio was tested before.
    """

    primary: str
    selection: SelectedTasks
    search: Search
    runs: Sequence[FinalRun]
    loss: bool = False
    looks: Sequence[int] = ()

    @property
    def ratio(self) -> Ratio:
        """The best mixing ratio."""
        return self.search.best.ratio

    @property
    def finals(self) -> list[FinalRun]:
        """The trainings with the best ratio, one for each seed."""
        return [run for run in self.runs if run.ratio == self.ratio]

    @property
    def alone(self) -> list[FinalRun]:
        """The trainings of the primary alone with the same seeds."""
        return [run for run in self.runs if sum(run.ratio.values()) == run.ratio[self.primary]]

    @property
    def spent(self) -> dict[str, StageCost]:
        """The cost of each stage, and the total."""
        stages = {
            "selection": self.selection.spent,
            "search": self.search.spent,
            "final": StageCost.total(run.spent for run in self.runs),
        }
        return stages | {"total": StageCost.total(stages.values())}

    @property
    def difference(self) -> Difference | None:
        """How much better the best ratio is than the primary alone, paired by seed.

        None if the best ratio is the primary alone, or if a final training diverged. No seed is
        that of the search: the best of many noisy trials has a score that is too high.
        """
        if not self._mixed or self._diverged:
            return None
        values = {
            name: {run.seed: run.value for run in runs}
            for name, runs in (("alone", self.alone), ("mixed", self.finals))
        }
        return differences(values, "alone", {"mixed": self.looks})["mixed"]

    @property
    def helpful(self) -> tuple[str, ...]:
        """The candidates in the best ratio, if there is evidence that they help together.

        Candidates that do not help are named in at most 2.5% of studies with one set of final
        seeds: half of the level of the test, because a ratio that harms is not named.
        """
        difference = self.difference
        is_better = difference is not None and difference.significant and difference.mean > 0
        return self._mixed if is_better else ()

    @property
    def _mixed(self) -> tuple[str, ...]:
        return tuple(task for task in self.selection.auxiliaries if self.ratio[task])

    @property
    def _diverged(self) -> int:
        return sum(math.isinf(run.value) for run in self.runs)

    @property
    def unit(self) -> Unit:
        return LOSSES if self.loss else SCORES

    def tables(self) -> list[Table]:
        """Return the utilities, the best ratios that were tried, and the final trainings."""
        finals = replace(self.finals_table(), notes=(self.verdict(),))
        return [*self.utilities_tables(), self.trials_table().first(MAX_TRIALS), finals]

    def verdict(self) -> str:
        """Return whether candidates help, in what ratio, on what evidence and at what price."""
        cost = f"{self.spent['total'].steps:,} steps were spent."
        if not self._mixed:
            return f"{self._no_better_ratio()}{self._untried()} {cost}"
        mixture = f"{self.primary} with {' and '.join(self._mixed)}"
        ratio = f"The ratio {':'.join(self.ratio)} is {self.search.best.ratio_text}; {cost}"
        difference = self.difference
        if difference is None:
            count = f"{self._diverged} of {len(self.runs)}"
            evidence = f"{count} final trainings of {mixture} or alone diverged."
        else:
            evidence = verdict({mixture: difference}, f"{self.primary} alone", self.unit).sentence
        named = f"{' and '.join(self._mixed)} {'helps' if len(self._mixed) == 1 else 'help'}"
        doubt = "" if self.helpful else f"No evidence that {named} {self.primary}. "
        return f"{doubt}{evidence}{self._untried()} {ratio}"

    def _no_better_ratio(self) -> str:
        ratios = [trial.ratio for trial in self.search.tried if not trial.diverged]
        tried = [task for task in self.selection.auxiliaries if any(r[task] for r in ratios)]
        if not tried:
            return f"Only {self.primary} alone was tried."
        return f"No ratio with {' or '.join(tried)} was better than {self.primary} alone."

    def _untried(self) -> str:
        """Return a sentence on the candidates that no trial had a part of."""
        known = [utility.task for utility in self.selection.utilities]
        mixed = {task for trial in self.search.tried for task, n in trial.ratio.items() if n}
        untried = [
            task
            for task in dict.fromkeys((*self.selection.auxiliaries, *known))
            if task not in mixed and task != self.primary
        ]
        return f" No ratio with {' or '.join(untried)} was tried." if untried else ""

    def spent_table(self) -> Table:
        """Return what each stage cost."""
        headings = ("steps", "examples forward", "examples backward")
        rows: list[Row] = [
            [stage, cost.steps, cost.forward, cost.backward] for stage, cost in self.spent.items()
        ]
        return Table([Column("stage"), *(Column(name, ",") for name in headings)], rows, totals=1)

    def utilities_tables(self) -> list[Table]:
        """Return the utility of each task by stage 1; none where there was no such stage."""
        columns = [
            Column("task"),
            Column("utility", ".2f"),
            Column("95% credible interval"),
            Column("rounds", ","),
            Column("selected"),
        ]
        marks = {self.primary: "primary"} | dict.fromkeys(self.selection.auxiliaries, "yes")
        rows: list[Row] = [
            [u.task, u.mean, f"{u.low:.2f} to {u.high:.2f}", u.pulls, marks.get(u.task, "no")]
            if u.pulls
            else [u.task, None, None, 0, marks.get(u.task, "not tried")]
            for u in self.selection.utilities
        ]
        return [Table(columns, rows)] if rows else []

    def trials_table(self) -> Table:
        """Return the mixing ratios that stage 2 tried, the best first."""
        columns = [
            Column("ratio " + ":".join(self.search.space.tasks)),
            Column("trial"),
            Column("objective", self.unit.level),
            Column("steps", ","),
            Column(""),
        ]
        rows: list[Row] = [
            [
                trial.ratio_text,
                trial.number,
                None if trial.diverged else trial.value,
                trial.spent.steps,
                self._mark(trial),
            ]
            for trial in self.search.ranked()
        ]
        return Table(columns, rows)

    def _mark(self, trial: Tried) -> str:
        if trial.pruned or trial.diverged:
            return "pruned" if trial.pruned else "diverged"
        if trial is self.search.best:
            return "best"
        return "primary alone" if trial is self.search.alone else ""

    def finals_table(self) -> Table:
        """Return the final trainings, a row for each ratio and seed."""
        columns = [
            Column("ratio " + ":".join(self.search.space.tasks)),
            Column("seed"),
            Column("objective", self.unit.level),
            Column("steps", ","),
            Column("run folder", left=True),
        ]
        rows: list[Row] = [
            [
                ratio_text(run.ratio),
                str(run.seed),
                "diverged" if math.isinf(run.value) else run.value,
                run.spent.steps,
                str(run.folder),
            ]
            for run in self.runs
        ]
        return Table(columns, rows)

    def to_json(self, folder: Path) -> str:
        """Return the result as JSON, with the paths of runs relative to the study's folder.

        The value of a training that diverged is the text -Infinity.
        """
        alone = self.search.alone
        values = {
            "verdict": self.verdict(),
            "primary": self.primary,
            "auxiliaries": self.selection.auxiliaries,
            "ratio": self.ratio,
            "helpful": self.helpful,
            "difference": self.difference,
            "loss": self.loss,
            "looks": self.looks,
            "primary_alone": None if alone is None else alone.value,
            "final": [replace(run, folder=run.folder.relative_to(folder)) for run in self.runs],
            "spent": self.spent,
            "primary_range": self.search.space.primary_range,
            "auxiliary_range": self.search.space.auxiliary_range,
            "utilities": self.selection.utilities,
            "trials": self.search.tried,
        }
        return to_json(values, indent=2, inf_nan_mode="strings").decode() + "\n"


class _Stored(BaseModel):
    """The fields of `autosem.json` that the others follow from."""

    primary: str
    auxiliaries: tuple[str, ...]
    loss: bool
    looks: tuple[int, ...]
    final: list[FinalRun]
    spent: dict[str, StageCost]
    primary_range: tuple[int, int]
    auxiliary_range: tuple[int, int]
    utilities: list[Utility]
    trials: list[Tried]


def read_result(folder: Path) -> AutosemResult:
    """Return the result in the folder of a finished study."""
    path = folder / RESULT
    try:
        stored = _Stored.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{path}: expected the result of a study, found {explain(error)}; the command of the"
            " study writes it again"
        ) from None
    space = RatioSpace(
        stored.primary, stored.auxiliaries, stored.primary_range, stored.auxiliary_range
    )
    return AutosemResult(
        stored.primary,
        SelectedTasks(stored.auxiliaries, stored.utilities, stored.spent["selection"]),
        Search(space, stored.trials),
        [replace(run, folder=folder / run.folder) for run in stored.final],
        stored.loss,
        stored.looks,
    )
