"""Several contestants on the same tasks at the same budget."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from taskmix.config import OF_MACHINE, Objective, RunConfig, changed, decided_by
from taskmix.errors import UserError, unknown
from taskmix.families import FAMILIES
from taskmix.studies.paired import LOSSES, SCORES, Difference, Unit, differences

if TYPE_CHECKING:
    from optuna.trial import Trial
    from torch import nn

    from taskmix.tasks.task import Task
    from taskmix.training.folder import Finished
    from taskmix.training.watching import Watcher

LONGEST = 80
"""Characters in a folder's name; a policy of many numbers has more than file systems take."""


@dataclass(frozen=True)
class Comparison:
    """The finished runs of each contestant.

    Args:
        runs: by contestant, its runs, one a seed, in the same order of seeds.
        folders: by contestant, their folders.
        baseline: the contestant that the others are compared with; the first if None.
        objective: what all runs are for; None means the mean score over all tasks.
    """

    runs: Mapping[str, Sequence["Finished"]]
    folders: Mapping[str, Sequence[Path]]
    baseline: str | None = None
    objective: Objective | None = None

    @property
    def tasks(self) -> list[str]:
        """The tasks, in order."""
        return list(next(iter(self.runs.values()))[0].tasks)

    def score(self, policy: str, task: str | None = None) -> list[float]:
        """By seed, a policy's score on a task; on the average over tasks if None."""
        return [run.score if task is None else run.tasks[task].score for run in self.runs[policy]]

    @property
    def unit(self) -> Unit:
        """How tables give its values."""
        return unit_of(self.objective)

    def value(self, policy: str, task: str) -> list[float]:
        """By seed, a policy's score on a task; where runs are for a loss, its loss times -1."""
        if self.unit is LOSSES:
            return [-run.tasks[task].loss for run in self.runs[policy]]
        return self.score(policy, task)

    def outcome(self, policy: str) -> list[float]:
        """By seed, what a policy is judged by: the objective, else the average over tasks.

        Where no objective is named, each run still has one, but a weighting's is its target's
        score: deciders of several families are compared by the average.
        """
        if self.objective is None:
            return self.score(policy)
        return [run.score if run.objective is None else run.objective for run in self.runs[policy]]

    def best(self) -> str:
        """Return the policy with the highest mean outcome over the seeds."""
        return max(self.runs, key=lambda policy: mean(self.outcome(policy)))

    def differences(self, task: str | None = None) -> dict[str, Difference]:
        """Return how much each policy is better than the baseline on a task; in all if None."""
        scores = {
            policy: self.outcome(policy) if task is None else self.value(policy, task)
            for policy in self.runs
        }
        by_seed = {policy: dict(enumerate(found)) for policy, found in scores.items()}
        return differences(by_seed, self.baseline or next(iter(self.runs)))


def unit_of(objective: Objective | None) -> Unit:
    """Return how tables of runs with this objective give their values."""
    return LOSSES if objective is not None and objective.measure == "loss" else SCORES


def label(decider: Mapping[str, Any]) -> str:
    """Return what tables and folders call a decider: the user's name for it, if there is one.

    Otherwise that is its own name and what was asked of it.

    >>> label({"name": "temperature", "temperature": 2})
    'temperature(temperature=2)'
    >>> label({"name": "temperature", "temperature": 2, "as": "warm"})
    'warm'
    """
    if "as" in decider:
        return str(decider["as"])
    options = ", ".join(f"{key}={value}" for key, value in decider.items() if key != "name")
    return f"{decider['name']}({options})" if options else str(decider["name"])


@dataclass(frozen=True)
class Job:
    """One run of a comparison.

    Args:
        label: of the decider.
        config: of the run.
        folder: of the run.
    """

    label: str
    config: RunConfig
    folder: Path

    @property
    def key(self) -> str:
        """What a study calls it.

        A name of the user's own does not say what was asked of the decider. So that results of
        another decider of that name are never taken for this one's, the key does.
        """
        decider = self.config.decider
        asked = f"-{_digest(json.dumps(decider, sort_keys=True))}" if "as" in decider else ""
        return f"{self.folder.parent.name}{asked}/{self.folder.name}"


@dataclass(frozen=True)
class Jobs:
    """The runs of a comparison, and what each of them needs.

    Args:
        config: what they have in common.
        jobs: the runs.
        model: makes the module of one's own that each run starts from.
        tasks: tasks made in Python.
        cache: the folder for what is computed once.
        watch: makes the watcher of each run from its configuration and a title.
    """

    config: RunConfig
    jobs: Sequence[Job]
    model: "Callable[[], nn.Module] | None" = None
    tasks: "Sequence[Task] | Mapping[str, Task]" = ()
    cache: Path | None = None
    watch: "Callable[[RunConfig, str], Watcher] | None" = None

    def check(self) -> None:
        """Raise if the options of a decider are wrong, hours before its turn comes."""
        from taskmix.config import build_decider
        from taskmix.training.prepare import run_info_before
        from taskmix.training.run import by_name

        info = run_info_before(self.config, by_name(self.tasks), self.cache)
        for config in {job.label: job.config for job in self.jobs}.values():
            build_decider(config, info)

    def run(self, job: Job) -> "Finished":
        """Train, or go on with what is in the job's folder."""
        from taskmix.training.run import run

        title = f"{job.label}, seed {job.config.seed}"
        return run(
            job.config,
            job.folder,
            model=self.model() if self.model is not None else None,
            tasks=self.tasks,
            resume=True,
            cache=self.cache,
            watchers=[self.watch(job.config, title)] if self.watch is not None else (),
        )


def compare(
    config: RunConfig | Mapping[str, Any] | str | Path,
    deciders: Sequence[str | Mapping[str, Any]],
    seeds: Sequence[int],
    out: Path | str,
    *,
    baseline: str | None = None,
    storage: str | None = None,
    workers: int = 1,
    model: "Callable[[], nn.Module] | None" = None,
    tasks: "Sequence[Task] | Mapping[str, Task]" = (),
    cache: Path | None = None,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Comparison:
    """Run each decider with each seed at the same budget; what is done is not done again.

    Args:
        config: what the runs have in common, as `run` takes it.
        deciders: policies, selectors or weightings: names, or mappings of a name and options; `as`
            among them is the name that tables, pages and folders call it by.
        seeds: paired: a seed means the same first weights and data order under every decider.
        out: the folder of the runs.
        baseline: what the others are compared with: the name of one of the deciders; the first if
            None.
        storage: URL of a storage that calls on several machines share the runs through, see
            `taskmix.autosem`.
        workers: processes on this machine; see `taskmix.autosem`.
        model: makes the module of one's own that each run starts from.
        tasks: tasks made in Python.
        cache: the folder for what is computed once, encoded splits above all.
        watch: makes the watcher of each run from its configuration and a title.
    """
    from taskmix.training.run import configured

    out, asked = Path(out), configured(config, tasks)
    against = check_contestants(asked, deciders, baseline)
    asks = [_job(asked, decider, seed, out) for seed in seeds for decider in deciders]
    jobs = Jobs(asked, asks, model, tasks, cache, watch)
    jobs.check()
    if storage is None and workers == 1:
        return _compared(((job, jobs.run(job)) for job in asks), against, asked.objective)
    from taskmix.studies.storage import default_url
    from taskmix.studies.workers import helpers

    url = storage or default_url(out)
    with helpers(workers - 1, share, jobs, url):
        return _compared(share(jobs, url), against, asked.objective)


def share(jobs: Jobs, url: str) -> "list[tuple[Job, Finished]]":
    """Do a worker's part of a comparison, and return all finished runs.

    Args:
        jobs: the runs.
        url: of the storage that the workers share.
    """
    from taskmix.studies.storage import open_storage
    from taskmix.studies.workers import SLOT, SharedStudy, Slot
    from taskmix.training.folder import finished_from

    by_key = {job.key: job for job in jobs.jobs}

    def play(trial: "Trial") -> float:
        done = jobs.run(by_key[trial.user_attrs[SLOT]])
        trial.set_user_attr("finished", asdict(done))
        return done.score if done.objective is None else done.objective

    with open_storage(url) as storage:
        study = SharedStudy(storage, f"compare/{jobs.config.name}")
        study.for_purpose(_common(jobs.config))
        study.prepare([Slot(key) for key in by_key])
        study.work(play, list(by_key))
        done = study.finished()
    return [(job, finished_from(done[key].user_attrs["finished"])) for key, job in by_key.items()]


def _common(config: RunConfig) -> dict[str, Any]:
    """Return what all runs of a comparison have to agree on, on whatever machine."""
    common: dict[str, Any] = config.model_dump(
        mode="json", exclude={*FAMILIES, *OF_MACHINE, "seed"}
    )
    return common


def _job(asked: RunConfig, decider: str | Mapping[str, Any], seed: int, out: Path) -> Job:
    own = changed(decided_by(asked, decider, Path(), "compare"), {"seed": seed}, "compare")
    name = label(own.decider)
    return Job(name, own, out / _folder(name) / f"seed-{seed}")


def check_contestants(
    config: RunConfig, deciders: Sequence[str | Mapping[str, Any]], baseline: str | None = None
) -> str:
    """Return the name of the baseline, or raise unless contestants can be told apart by name.

    Args:
        config: what the runs have in common.
        deciders: as `compare` takes them.
        baseline: the name that is asked for; the first if None.
    """
    names = [label(decided_by(config, each, Path(), "compare").decider) for each in deciders]
    if not names:
        raise UserError("compare: expected at least one contestant, found none")
    folders = [_folder(name) for name in names]
    for name, folder in zip(names, folders, strict=True):
        if folders.count(folder) > 1:
            raise UserError(
                f"compare: expected contestants of different names, found {name} twice; give one "
                "a name of its own with as"
            )
    if baseline is not None and baseline not in names:
        raise unknown("contestant", baseline, names, "baseline")
    return baseline if baseline is not None else names[0]


def _compared(
    done: "Iterable[tuple[Job, Finished]]", baseline: str, objective: Objective | None
) -> Comparison:
    runs: dict[str, list[Finished]] = {}
    folders: dict[str, list[Path]] = {}
    for job, finished in done:
        runs.setdefault(job.label, []).append(finished)
        folders.setdefault(job.label, []).append(job.folder)
    return Comparison(runs, folders, baseline, objective)


def _folder(name: str) -> str:
    plain = "".join(c if c.isalnum() or c in "_-=.," else "-" for c in name).strip("-")
    if len(plain) <= LONGEST:
        return plain
    return f"{plain[:LONGEST]}-{_digest(name)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()
