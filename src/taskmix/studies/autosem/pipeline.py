"""AutoSeM: select the tasks that help, learn their mixing ratio, train with it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig
from taskmix.files import write_whole
from taskmix.search.ratios import Ratio
from taskmix.studies.autosem.final import FinalRun, train
from taskmix.studies.autosem.search import Search, Tried, search
from taskmix.studies.autosem.selection import SelectedTasks, select
from taskmix.studies.autosem.settings import AutosemSettings, Plan, made_plan, name_of
from taskmix.studies.autosem.spent import StageCost
from taskmix.studies.storage import default_url, open_storage
from taskmix.studies.workers import helpers

if TYPE_CHECKING:
    from torch import nn

    from taskmix.tasks.task import Task
    from taskmix.training.watching import Watcher

RESULT = "autosem.json"


@dataclass(frozen=True)
class AutosemResult:
    """What an AutoSeM study came to.

    Args:
        primary: the task that the others were to help.
        selection: which candidates help.
        search: which ratios were tried.
        finals: the trained models.
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
        """What each stage cost, and the total."""
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
        ratio = ":".join(str(count) for count in best.ratio.values())
        cost = f"{self.spent['total'].steps:,} steps were spent"
        if not helping:
            return f"No candidate helps {self.primary}: alone it is best, {_of(best)}; {cost}."
        against = f", against {_of(alone)} alone" if alone is not None else ""
        return (
            f"{self.primary} is best with {' and '.join(helping)}, "
            f"{':'.join(best.ratio)} = {ratio}: {_of(best)}{against}; {cost}."
        )

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
            "utilities": [asdict(each) for each in self.selection.utilities],
            "trials": [asdict(each) for each in self.search.tried],
        }


def _of(tried: Tried) -> str:
    return f"{100 * tried.value:.1f}"


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
    """Find which tasks help a primary task and in what ratio, and train with it.

    Guo, Pasunuru and Bansal (2019). Stage 1 trains once with Thompson sampling and selects
    candidates; stage 2 searches mixing ratios with a Gaussian process, each sample a whole run;
    then the model is trained with the best ratio. Killed anywhere, the same call goes on; and
    several calls with the same storage share the work.

    Args:
        config: what the runs have in common, as `run` takes it; its `budget` is that of a run of
            stage 2, its `seed` that of both stages.
        primary: one of its tasks.
        candidates: tasks of it that may help; all others if None.
        out: the folder of the runs. Workers on several machines share it, or take up killed trials
            from their start.
        settings: how the study is done.
        seeds: of the final trainings; the configuration's seed if there are none.
        storage: URL of the storage; an SQLite file in `out` if None.
        workers: processes on this machine. With more than one, what is given here is sent to other
            processes: functions and classes of a module.
        model: makes the module of one's own that each run starts from.
        tasks: tasks made in Python.
        cache: the folder for what is computed once, encoded splits above all.
        watch: makes the watcher of each run from its configuration and a title.
    """
    from taskmix.training.run import configured

    asked, folder = configured(config, tasks), Path(out)
    others = [name for name in map(name_of, asked.tasks) if name != primary]
    plan = made_plan(
        Plan(
            asked,
            primary,
            tuple(others if candidates is None else candidates),
            folder,
            storage or default_url(folder),
            tuple(seeds) or (asked.seed,),
            settings or AutosemSettings(),
            model,
            tasks,
            cache,
            watch,
        )
    )
    folder.mkdir(parents=True, exist_ok=True)
    with helpers(workers - 1, follow, plan):
        result = follow(plan)
    write_whole(folder / RESULT, json.dumps(result.to_json(), indent=2) + "\n")
    return result


def follow(plan: Plan) -> AutosemResult:
    """Do a worker's part of a study, from stage to stage, and return the result.

    Args:
        plan: of the study.
    """
    with open_storage(plan.storage) as storage:
        selection = select(plan, storage)
        found = search(plan, selection, storage)
        return AutosemResult(plan.primary, selection, found, train(plan, found, storage))
