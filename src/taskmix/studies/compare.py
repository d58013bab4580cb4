"""Compare contestants on the same tasks at the same budget."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from taskmix.config import OF_MACHINE, RunConfig, changed, dump, label, parse_stored, read_yaml
from taskmix.config.schema import DEFAULT_POLICY
from taskmix.errors import DivergedError, UserError, unknown
from taskmix.families import FAMILIES
from taskmix.files import write_whole
from taskmix.journal import read_latest
from taskmix.studies.comparison import Comparison
from taskmix.studies.contestants import (
    ALONE,
    ContestantSpec,
    Job,
    check_names,
    contestant_config,
    jobs_of,
    merged_runs,
)
from taskmix.studies.locks import FileLocks
from taskmix.studies.looks import record_look
from taskmix.studies.workers import Runner, check_same_settings, helpers
from taskmix.training.folder import JOURNAL, RUN, SCORES, Finished, config_of, finished
from taskmix.training.objective import check_objective

if TYPE_CHECKING:
    from torch import nn

    from taskmix.tasks.task import Task
    from taskmix.training.watching import Watcher

UNIFORM = "random"
SETTINGS = "compare.yaml"
"""The run file that all runs of a comparison's folder share, whatever the contestant and seed."""
LOCKS = ".locks"
DIVERGED = "diverged.txt"
"""In the folder of a run that diverged, the reason; the run is not tried again."""
log = logging.getLogger(__name__)

Result = tuple[Job, Finished | None]
"""A run, and its scores; None if it diverged."""


def compare(
    config: RunConfig | Mapping[str, Any] | str | Path,
    deciders: Sequence[ContestantSpec] | None = None,
    seeds: Sequence[int] = (1,),
    out: Path | str | None = None,
    *,
    equal: Literal["steps", "examples", "compute"] | None = None,
    baseline: str | None = None,
    workers: int = 1,
    keep_checkpoints: bool = False,
    model: "Callable[[], nn.Module] | None" = None,
    tasks: "Sequence[Task] | Mapping[str, Task]" = (),
    cache: Path | None = None,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Comparison:
    """Run each contestant with each seed at the same budget.

    Runs that are finished are not run again, so a comparison can be resumed, and extended by seeds
    and contestants; the result has all runs of the folder. Several calls with the same folder, on
    one machine or on several that share a disk, divide the runs among them: each run is locked by
    the worker that trains it, and the run of a worker that was killed is resumed by another one.
    A run that diverges is reported, and the others go on.

    Args:
        config: the configuration that the runs share, as `run` takes it.
        deciders: the contestants. Policies, selectors or weightings: names, or mappings of a name
            and options; the option `as` is the name used in tables, pages and folders. Or mappings
            without a name, with `as` and other settings of the run file: `{"as": "conditioned",
            "model": {"conditional": True}, "policy": "random"}`. Or `"alone"`: each task is
            trained alone, with an equal part of the budget. Or the folder of a finished AutoSeM
            study, with a slash in it: the policy `cycle` with the ratio that the study found. None
            compares uniform sampling with the decider of the configuration.
        seeds: the seeds; each gives every contestant the same initial weights and data order.
        out: the folder of the runs; `studies/NAME` if None.
        equal: what each run gets the same amount of; `budget.count` of the configuration if None.
        baseline: the contestant that the others are compared with, by its name; the first if None.
        workers: processes on this machine. With more than one, tasks, model and watch are sent to
            other processes: they have to be functions and classes of a module.
        keep_checkpoints: keep the last checkpoint of finished runs, with which they can be
            extended; otherwise only their models are kept.
        model: a function that creates your own module, from which each run starts.
        tasks: tasks made in Python.
        cache: the cache folder, for encoded splits above all.
        watch: a function that creates the watcher of a run from its configuration and a title.
    """
    from taskmix.training.run import configured

    shared = configured(config, tasks)
    if equal is not None:
        budget = shared.budget.model_dump() | {"count": equal}
        shared = changed(shared, {"budget": budget}, "compare, equal")
    out = Path("studies") / shared.name if out is None else Path(out)
    check_objective(shared.objective, shared.task_names)  # before a policy complains of it
    specs = with_uniform(shared) if deciders is None else deciders
    contestants = [contestant_config(shared, spec) for spec in specs]
    names = check_names(contestants)
    runner, locks = Runner(model, tasks, cache, watch, keep_checkpoints), FileLocks(out / LOCKS)
    _check_deciders(shared, contestants, runner)
    jobs = [
        job
        for seed in seeds
        for contestant in contestants
        for job in jobs_of(contestant, seed, out)
    ]
    known = [*names, *(job.label for job, _ in _earlier(out, ()))]
    if baseline is not None and baseline not in known:
        raise unknown("contestant", baseline, known, "baseline")
    with locks.wait(SETTINGS):
        _check_settings(shared, out / SETTINGS)
    with helpers(workers - 1, run_jobs, jobs, runner, locks):
        done = run_jobs(jobs, runner, locks)
    results = [(job, done[job.name]) for job in jobs]
    return _gathered([*results, *_earlier(out, done)], baseline or names[0], shared, out)


def with_uniform(config: RunConfig) -> list[ContestantSpec]:
    """Return uniform sampling, and the decider of the configuration or else the default policy."""
    is_uniform = config.decider["name"] == UNIFORM
    return [UNIFORM, DEFAULT_POLICY if is_uniform else config.decider]


def run_jobs(jobs: Sequence[Job], runner: Runner, locks: FileLocks) -> dict[str, Finished | None]:
    """Run the jobs that no other worker has locked, until all are finished.

    Return the results by the jobs' names; None for a run that diverged.
    """
    return locks.share({job.name: partial(run_job, job, runner) for job in jobs})


def run_job(job: Job, runner: Runner) -> Finished | None:
    """Train, resume or read a run; return None if it diverges."""
    title = f"{job.label}, seed {job.config.seed}"
    if is_diverged(job.folder):
        return None
    try:
        # A run that another worker has finished meanwhile returns its scores at once.
        return runner.run(job.config, job.folder, title)
    except DivergedError as error:
        log.warning("%s diverged: %s", title, error.reason)
        write_whole(job.folder / DIVERGED, f"{error.reason}\n")
        return None


def is_diverged(folder: Path) -> bool:
    return (folder / DIVERGED).exists() and not (folder / SCORES).exists()


def _earlier(out: Path, known: Collection[str]) -> list[Result]:
    """Return the results of the folder's other runs."""
    results: list[Result] = []
    for path in sorted([*out.glob(f"*/seed-*/{RUN}"), *out.glob(f"{ALONE}/seed-*/*/{RUN}")]):
        name = path.parent.relative_to(out).as_posix()
        is_finished = (path.parent / SCORES).exists()
        if name not in known and (is_finished or is_diverged(path.parent)):
            config = config_of(path.parent)
            job = Job(label(config.decider), config, path.parent, name)
            results.append((job, finished(path.parent) if is_finished else None))
    return results


def _gathered(results: Sequence[Result], baseline: str, shared: RunConfig, out: Path) -> Comparison:
    """Return the comparison of all results, with the single-task trainings of a seed as one run."""
    by_run: dict[tuple[str, int], list[Result]] = {}
    for job, result in results:
        by_run.setdefault((job.label, job.config.seed), []).append((job, result))
    runs: dict[str, list[Finished]] = {}
    folders: dict[str, list[Path]] = {}
    seeds: dict[str, list[int]] = {}
    seconds: dict[str, list[float]] = {}
    diverged: dict[str, list[int]] = {}
    for (name, seed), of_run in by_run.items():
        parts = [result for _, result in of_run if result is not None]
        if len(parts) < len(of_run):
            diverged.setdefault(name, []).append(seed)
        elif name != ALONE or len(parts) == len(shared.tasks):
            runs.setdefault(name, []).append(merged_runs(parts, shared.objective))
            seeds.setdefault(name, []).append(seed)
            seconds.setdefault(name, []).append(sum(run_seconds(job.folder) for job, _ in of_run))
            if name != ALONE:
                folders.setdefault(name, []).append(of_run[0][0].folder)
    if not runs:
        raise UserError(
            f"compare: expected a run that does not diverge, found {len(results)} that do; look at"
            " the data or lower optimizer.lr"
        )
    against = baseline if baseline in runs else next(iter(runs))
    # The test is paired: it looks at the seeds that the baseline has, too.
    paired = {name: len({*of_name} & {*seeds[against]}) for name, of_name in seeds.items()}
    looks = record_look(out, paired)
    return Comparison(runs, folders, against, shared.objective, seeds, looks, diverged, seconds)


def run_seconds(folder: Path) -> float:
    """Return the seconds that a run took, from its journal."""
    path = folder / JOURNAL
    records = read_latest(path) if path.exists() else []
    return sum(getattr(record, "seconds", None) or 0.0 for record in records)


def _check_deciders(config: RunConfig, contestants: Sequence[RunConfig], runner: Runner) -> None:
    """Raise if the options of a decider are wrong, hours before its turn comes."""
    from taskmix.config import build_decider
    from taskmix.training.prepare import by_name, run_info_before

    info = run_info_before(config, by_name(runner.tasks), runner.cache)
    for contestant in contestants:
        build_decider(contestant, info)


def _check_settings(config: RunConfig, path: Path) -> None:
    """Keep the configuration in the folder; raise if the runs there were begun with another."""
    if not (path.exists() and any(path.parent.glob(f"*/seed-*/**/{RUN}"))):
        write_whole(path, dump(config))
        return
    known = _shared_settings(parse_stored(read_yaml(path), str(path)))
    check_same_settings(str(path), known, _shared_settings(config), "choose another folder")


def _shared_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that all runs of a comparison agree on, on any machine."""
    settings: dict[str, Any] = config.model_dump(
        mode="json", exclude={*FAMILIES, *OF_MACHINE, "seed"}
    )
    return settings
