"""AutoSeM: select the tasks that help, learn their mixing ratio, train with it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from taskmix.config import RunConfig
from taskmix.errors import UserError, explain
from taskmix.files import write_whole
from taskmix.policies import Utility
from taskmix.search import RatioSpace
from taskmix.search.ratios import Ratio
from taskmix.studies.autosem.search import Search, Tried, ratio_text, search_ratios
from taskmix.studies.autosem.settings import (
    AutosemSettings,
    Plan,
    StageCost,
    checked_plan,
)
from taskmix.studies.autosem.stages import FinalRun, SelectedTasks, select, train_finals
from taskmix.studies.looks import record_look
from taskmix.studies.paired import LOSSES, SCORES, Difference, Unit, differences
from taskmix.studies.storage import default_url, open_storage
from taskmix.studies.verdict import verdict
from taskmix.studies.workers import Runner, helpers
from taskmix.tables import Column, Row, Table

if TYPE_CHECKING:
    from torch import nn

    from taskmix.tasks.task import Task
    from taskmix.training.watching import Watcher

RESULT = "autosem.json"
FINAL_SEEDS = 5
"""Seeds of the final trainings, if the user gives none."""


@dataclass(frozen=True)
class AutosemResult:
    """The result of an AutoSeM study.

    Args:
        primary: the task that the others were to help.
        selection: the candidates that help.
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
    def _unit(self) -> Unit:
        return LOSSES if self.loss else SCORES

    def verdict(self) -> str:
        """Return whether candidates help, in what ratio, on what evidence and at what price."""
        cost = f"{self.spent['total'].steps:,} steps were spent."
        if not self._mixed:
            return f"No ratio was better than {self.primary} alone. {cost}"
        mixture = f"{self.primary} with {' and '.join(self._mixed)}"
        ratio = f"The ratio {':'.join(self.ratio)} is {self.search.best.ratio_text}; {cost}"
        difference = self.difference
        if difference is None:
            count = f"{self._diverged} of {len(self.runs)}"
            evidence = f"{count} final trainings of {mixture} or alone diverged."
        else:
            evidence = verdict({mixture: difference}, f"{self.primary} alone", self._unit).sentence
        doubt = "" if self.helpful else f"No evidence that a candidate helps {self.primary}. "
        return f"{doubt}{evidence} {ratio}"

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
            for u in self.selection.utilities
        ]
        return [Table(columns, rows)] if rows else []

    def trials_table(self) -> Table:
        """Return the mixing ratios that stage 2 tried, the best first."""
        columns = [
            Column("ratio " + ":".join(self.search.space.tasks)),
            Column("trial"),
            Column("objective", self._unit.level),
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
            Column("objective", self._unit.level),
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


def autosem(
    config: RunConfig | Mapping[str, Any] | str | Path,
    primary: str,
    candidates: Sequence[str] | None,
    out: Path | str,
    *,
    settings: AutosemSettings | None = None,
    seeds: Sequence[int] = (),
    storage: str | None = None,
    workers: int = 1,
    keep_checkpoints: bool = False,
    model: "Callable[[], nn.Module] | None" = None,
    tasks: "Sequence[Task] | Mapping[str, Task]" = (),
    cache: Path | None = None,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> AutosemResult:
    """Find the tasks that help a primary task and their mixing ratio, and train with it.

    Guo, Pasunuru and Bansal (2019). Stage 1 trains once with Thompson sampling and selects
    candidates; stage 2 searches mixing ratios with a Gaussian process, one run for each ratio; then
    models are trained with the best ratio and with the primary alone, which shows whether the
    ratio helps. The same call resumes a study that was killed, and several calls with the same
    storage divide the runs among them. A finished study can have more trials and more seeds.

    Args:
        config: the configuration that the runs share, as `run` takes it; its `budget` is that of a
            run of stage 2, its `seed` that of both stages.
        primary: one of its tasks.
        candidates: tasks of it that may help; all others if None.
        out: the folder of the runs. Workers on several machines share it; without a shared folder,
            a trial whose worker was killed starts again from its beginning.
        settings: of the study.
        seeds: of the final trainings, none of them the configuration's; the five that follow it
            if there are none.
        storage: URL of the Optuna storage; an SQLite file in `out` if None.
        workers: processes on this machine. With more than one, tasks, model and watch are sent to
            other processes: they have to be functions and classes of a module.
        keep_checkpoints: keep the last checkpoint of finished runs, with which they can be
            extended; otherwise only their models are kept.
        model: makes the user's own module that each run starts from.
        tasks: tasks made in Python.
        cache: the cache folder, for encoded splits above all.
        watch: makes the watcher of each run from its configuration and a title.
    """
    from taskmix.training.run import configured

    shared, folder = configured(config, tasks), Path(out)
    others = [name for name in shared.task_names if name != primary]
    plan = checked_plan(
        Plan(
            shared,
            primary,
            tuple(others if candidates is None else candidates),
            folder,
            storage or default_url(folder),
            tuple(seeds) or tuple(range(shared.seed + 1, shared.seed + 1 + FINAL_SEEDS)),
            settings or AutosemSettings(),
            Runner(model, tasks, cache, watch, keep_checkpoints),
        )
    )
    with open_storage(plan.storage):  # before anything is written
        folder.mkdir(parents=True, exist_ok=True)
    with helpers(workers - 1, run_stages, plan):
        result = run_stages(plan)
    text = result.search.best.ratio_text
    result = replace(result, looks=record_look(folder, {text: len(result.finals)})[text])
    write_whole(folder / RESULT, result.to_json(folder))
    return result


def run_stages(plan: Plan) -> AutosemResult:
    """Run a worker's part of each stage in turn, and return the result of the study."""
    with open_storage(plan.storage) as storage:
        selection = select(plan, storage)
        search = search_ratios(plan, selection.auxiliaries, selection.utilities, storage)
        finals = train_finals(plan, search, storage)
        objective = plan.config.objective
        is_loss = objective is not None and objective.measure == "loss"
        return AutosemResult(plan.primary, selection, search, finals, is_loss)
