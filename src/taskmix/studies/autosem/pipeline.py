"""AutoSeM: select the tasks that help, learn their mixing ratio, train with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig
from taskmix.files import write_whole
from taskmix.studies.autosem.result import RESULT, AutosemResult
from taskmix.studies.autosem.search import search_ratios
from taskmix.studies.autosem.settings import (
    AutosemSettings,
    Plan,
    PlannedCost,
    checked_plan,
    planned_cost,
)
from taskmix.studies.autosem.stages import select, train_finals
from taskmix.studies.looks import record_look
from taskmix.studies.storage import default_url, open_storage
from taskmix.studies.workers import Runner, helpers

if TYPE_CHECKING:
    from torch import nn

    from taskmix.tasks.task import Task
    from taskmix.training.watching import Watcher

FINAL_SEEDS = 5
"""Seeds of the final trainings, if the user gives none."""


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
    announce: Callable[[PlannedCost], None] | None = None,
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
        primary: the task of the configuration that the others are to help.
        candidates: the tasks that may help; all but the primary if None.
        out: the folder of the runs. Workers on several machines share it; without a shared folder,
            a trial whose worker was killed starts again from its beginning.
        settings: the settings of both stages.
        seeds: the seeds of the final trainings, different from the configuration's; if empty, the
            five numbers that follow the configuration's seed.
        storage: URL of the Optuna storage; an SQLite file in `out` if None.
        workers: processes on this machine. With more than one, tasks, model and watch are sent to
            other processes: they have to be functions and classes of a module.
        keep_checkpoints: keep the last checkpoint of finished runs, with which they can be
            extended; otherwise only their models are kept.
        model: a function that creates your own module, from which each run starts.
        tasks: tasks made in Python.
        cache: the cache folder, for encoded splits above all.
        watch: a function that creates the watcher of a run from its configuration and a title.
        announce: a function that is called before the first run with the most that the study can
            cost.
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
    if announce is not None:
        announce(planned_cost(plan))
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
