"""AutoSeM: select the tasks that help, learn their mixing ratio, train with it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig
from taskmix.files import write_whole
from taskmix.search.ratios import Ratio
from taskmix.studies.autosem.search import Search, Tried, search_ratios
from taskmix.studies.autosem.settings import (
    AutosemSettings,
    Plan,
    StageCost,
    checked_plan,
)
from taskmix.studies.autosem.stages import FinalRun, SelectedTasks, select, train_finals
from taskmix.studies.storage import default_url, open_storage
from taskmix.studies.workers import Runner, helpers
from taskmix.tables import Column, Row, Table, hundredths

if TYPE_CHECKING:
    from torch import nn

    from taskmix.tasks.task import Task
    from taskmix.training.watching import Watcher

RESULT = "autosem.json"


@dataclass(frozen=True)
class AutosemResult:
    """The result of an AutoSeM study.

    Args:
        primary: the task that the others were to help.
        selection: the candidates that help.
        search: the ratios that were tried.
        finals: the trainings with the best ratio.
    """

    primary: str
    selection: SelectedTasks
    search: Search
    finals: Sequence[FinalRun]

    @property
    def ratio(self) -> Ratio:
        """The best mixing ratio."""
        return self.search.best.ratio

    @property
    def spent(self) -> dict[str, StageCost]:
        """The cost of each stage, and the total."""
        stages = {
            "selection": self.selection.spent,
            "search": self.search.spent,
            "final": StageCost.total(run.spent for run in self.finals),
        }
        return stages | {"total": StageCost.total(stages.values())}

    def verdict(self) -> str:
        """Return in a sentence which candidates help, in what ratio, and at what price."""
        best, alone = self.search.best, self.search.alone
        helping = [task for task in self.selection.auxiliaries if best.ratio[task]]
        cost = f"{self.spent['total'].steps:,} steps were spent"
        if not helping:
            return f"No candidate helps {self.primary}: alone it is best, {_of(best)}; {cost}."
        against = f", against {_of(alone)} alone" if alone is not None else ""
        return (
            f"{self.primary} is best with {' and '.join(helping)}, "
            f"{':'.join(best.ratio)} = {best.ratio_text}: {_of(best)}{against}; {cost}."
        )

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
            Column("objective", hundredths),
            Column("steps", ","),
            Column(""),
        ]
        rows: list[Row] = [
            [trial.ratio_text, trial.number, trial.value, trial.spent.steps, self._mark(trial)]
            for trial in self.search.ranked()
        ]
        return Table(columns, rows)

    def _mark(self, trial: Tried) -> str:
        if trial.pruned:
            return "pruned"
        if trial is self.search.best:
            return "best"
        return "primary alone" if trial is self.search.alone else ""

    def finals_table(self) -> Table:
        """Return the final runs, a row for each seed."""
        columns = [
            Column("seed"),
            Column("objective", hundredths),
            Column("steps", ","),
            Column("run folder", left=True),
        ]
        rows: list[Row] = [
            [str(run.seed), run.value, run.spent.steps, str(run.folder)] for run in self.finals
        ]
        return Table(columns, rows)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON-able values."""
        alone = self.search.alone
        return {
            "primary": self.primary,
            "auxiliaries": list(self.selection.auxiliaries),
            "ratio": self.ratio,
            "primary_alone": None if alone is None else alone.value,
            "final": [{**asdict(run), "folder": str(run.folder)} for run in self.finals],
            "spent": {stage: asdict(cost) for stage, cost in self.spent.items()},
            "utilities": [asdict(utility) for utility in self.selection.utilities],
            "trials": [asdict(trial) for trial in self.search.tried],
        }


def _of(tried: Tried) -> str:
    return hundredths(tried.value)


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
    model: "Callable[[], nn.Module] | None" = None,
    tasks: "Sequence[Task] | Mapping[str, Task]" = (),
    cache: Path | None = None,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> AutosemResult:
    """Find the tasks that help a primary task and their mixing ratio, and train with it.

    Guo, Pasunuru and Bansal (2019). Stage 1 trains once with Thompson sampling and selects
    candidates; stage 2 searches mixing ratios with a Gaussian process, one run for each ratio; then
    the model is trained with the best ratio. The same call resumes a study that was killed, and
    several calls with the same storage divide the runs among them.

    Args:
        config: the configuration that the runs share, as `run` takes it; its `budget` is that of a
            run of stage 2, its `seed` that of both stages.
        primary: one of its tasks.
        candidates: tasks of it that may help; all others if None.
        out: the folder of the runs. Workers on several machines share it; without a shared folder,
            a trial whose worker was killed starts again from its beginning.
        settings: of the study.
        seeds: of the final trainings; the configuration's seed if there are none.
        storage: URL of the Optuna storage; an SQLite file in `out` if None.
        workers: processes on this machine. With more than one, tasks, model and watch are sent to
            other processes: they have to be functions and classes of a module.
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
            tuple(seeds) or (shared.seed,),
            settings or AutosemSettings(),
            Runner(model, tasks, cache, watch),
        )
    )
    folder.mkdir(parents=True, exist_ok=True)
    with helpers(workers - 1, run_stages, plan):
        result = run_stages(plan)
    write_whole(folder / RESULT, json.dumps(result.to_json(), indent=2) + "\n")
    return result


def run_stages(plan: Plan) -> AutosemResult:
    """Run a worker's part of each stage in turn, and return the result of the study."""
    with open_storage(plan.storage) as storage:
        selection = select(plan, storage)
        search = search_ratios(plan, selection.auxiliaries, selection.utilities, storage)
        finals = train_finals(plan, search, storage)
        return AutosemResult(plan.primary, selection, search, finals)
