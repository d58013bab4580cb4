"""Compare contestants on the same tasks at the same budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from taskmix.config import (
    OF_MACHINE,
    Objective,
    RunConfig,
    changed,
    decided_by,
    dump,
    parse,
    read_yaml,
)
from taskmix.errors import UserError, unknown
from taskmix.families import FAMILIES
from taskmix.files import write_whole
from taskmix.studies.locks import FileLocks
from taskmix.studies.looks import record_look
from taskmix.studies.paired import (
    LOSSES,
    SCORES,
    Difference,
    Unit,
    differences,
    how_tested,
    interval_words,
    p_words,
)
from taskmix.studies.verdict import Verdict, verdict
from taskmix.studies.workers import Runner, check_same_settings, helpers
from taskmix.tables import Column, Table, TableCell, Value

if TYPE_CHECKING:
    from torch import nn

    from taskmix.tasks.task import Task
    from taskmix.training.folder import Finished
    from taskmix.training.watching import Watcher

SETTINGS = "compare.yaml"
"""The run file that all runs of a comparison's folder share, whatever its decider and seed."""
LOCKS = ".locks"
MAX_NAME = 80
"""Characters of a folder's name; the label of a policy with many numbers is too long for one."""


@dataclass(frozen=True)
class Comparison:
    """The finished runs of each contestant.

    Args:
        runs: by contestant, its runs, one a seed, in the same order of seeds.
        folders: by contestant, their folders.
        baseline: the contestant that the others are compared with; the first if None.
        objective: what all runs are for; None means the mean score over all tasks.
        seeds: by contestant, the seeds of its runs; the same for all contestants if empty.
        looks: by contestant, the numbers of seeds at which it was tested before.
    """

    runs: Mapping[str, Sequence["Finished"]]
    folders: Mapping[str, Sequence[Path]]
    baseline: str | None = None
    objective: Objective | None = None
    seeds: Mapping[str, Sequence[int]] = field(default_factory=dict)
    looks: Mapping[str, Sequence[int]] = field(default_factory=dict)

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
        by_seed = {
            policy: dict(zip(self.seeds.get(policy) or range(len(values)), values, strict=True))
            for policy, values in scores.items()
        }
        return differences(by_seed, self._against, self.looks)

    def verdict(self) -> Verdict:
        """Return who won, by how much, whether it is more than noise, and its cost."""
        cost = {
            policy: mean(run.forward + run.backward for run in runs)
            for policy, runs in self.runs.items()
        }
        return verdict(self.differences(), self._against, self.unit, cost)

    def all_differences(self) -> list[tuple[str, dict[str, Difference]]]:
        """Return the differences in the measure that contestants are judged by, then by task."""
        measure = "mean" if self.objective is None else self.objective.words
        by_task = ((task, self.differences(task)) for task in self.tasks)
        return [(measure, self.differences()), *by_task]

    @property
    def _against(self) -> str:
        return self.baseline or next(iter(self.runs))

    def tables(self) -> list[Table]:
        """Return the scores, and the differences to the baseline if there is anyone to compare."""
        return [self.scores_table(), *self.differences_tables()]

    def scores_table(self) -> Table:
        """Return a row for each task: contestants are few, tasks may be many."""
        unit = self.unit
        values = [(task, [self.value(name, task) for name in self.runs]) for task in self.tasks]
        if unit is SCORES:
            values.append(("mean", [self.score(name) for name in self.runs]))
        if self.objective is not None:
            values.append((self.objective.words, [self.outcome(name) for name in self.runs]))
        rows: list[list[Value]] = [
            [name, *(unit.spread(seeds) for seeds in row)] for name, row in values
        ]
        best = {(i, j) for i, (_, row) in enumerate(values) for j in _best(row)}
        rows.append(["seeds", *(len(runs) for runs in self.runs.values())])
        for way in ("forward", "backward"):
            passed = (mean(getattr(run, way) for run in runs) for runs in self.runs.values())
            rows.append([f"examples {way}", *passed])
        return Table(
            [Column("task"), *(Column(name, ",.0f") for name in self.runs)],
            rows,
            "Loss by task" if unit is LOSSES else "Scores",
            frozenset(best),
            totals=len(rows) - len(self.tasks),
        )

    def differences_tables(self) -> list[Table]:
        """Return the table of differences to the baseline; none if there is nobody to compare."""
        (name, judged), *by_task = self.all_differences()
        unit = self.unit
        if not judged:
            return []
        rows: list[list[Value]] = [
            [
                row,
                *(
                    TableCell(interval_words(each, unit), each.mean)
                    for each in by_contestant.values()
                ),
            ]
            for row, by_contestant in [*by_task, (name, judged)]
        ]
        rows.append(["p", *(TableCell(p_words(each), each.p) for each in judged.values())])
        rows.append(["seeds", *(each.seeds for each in judged.values())])
        told = {k for k, each in enumerate(judged.values(), 1) if each.significant}
        return [
            Table(
                [Column(f"{unit.better} {self._against}"), *map(Column, judged)],
                rows,
                f"Differences to {self._against}",
                frozenset((row, k) for row in (len(by_task), len(by_task) + 1) for k in told),
                totals=3,
                notes=(how_tested(judged),),
            )
        ]


def _best(values: Sequence[Sequence[float]]) -> list[int]:
    """Return the columns with the highest mean, counted from 1; none where all are equal."""
    means = [mean(seeds) for seeds in values]
    best = [k for k, value in enumerate(means, 1) if value == max(means)]
    return best if len(best) < len(means) else []


def unit_of(objective: Objective | None) -> Unit:
    """Return how tables of runs with this objective give their values."""
    return LOSSES if objective is not None and objective.measure == "loss" else SCORES


def label(decider: Mapping[str, Any]) -> str:
    """Return a decider's name in tables: the user's, else its name and options.

    >>> label({"name": "temperature", "temperature": 2})
    'temperature 2'
    >>> label({"name": "exp3s", "eta": 0.1, "epsilon": 0.05})
    'exp3s eta 0.1, epsilon 0.05'
    >>> label({"name": "temperature", "temperature": 2, "as": "warm"})
    'warm'
    """
    if "as" in decider:
        return str(decider["as"])
    name = str(decider["name"])
    options = [
        str(value) if key == name else f"{key} {value}"
        for key, value in decider.items()
        if key != "name"
    ]
    return f"{name} {', '.join(options)}".rstrip()


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    label: str
    config: RunConfig
    folder: Path

    @property
    def name(self) -> str:
        """The run folder's path within the comparison's folder."""
        return f"{self.folder.parent.name}/{self.folder.name}"


def compare(
    config: RunConfig | Mapping[str, Any] | str | Path,
    deciders: Sequence[str | Mapping[str, Any]],
    seeds: Sequence[int],
    out: Path | str,
    *,
    baseline: str | None = None,
    workers: int = 1,
    model: "Callable[[], nn.Module] | None" = None,
    tasks: "Sequence[Task] | Mapping[str, Task]" = (),
    cache: Path | None = None,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Comparison:
    """Run each decider with each seed at the same budget.

    Runs that are finished are not run again, so a comparison can be resumed, and extended by seeds
    and deciders. Several calls with the same folder, on one machine or on several that share a
    disk, divide the runs among them: each run is locked by the worker that trains it, and the run
    of a worker that was killed is resumed by another one.

    Args:
        config: the configuration that the runs share, as `run` takes it.
        deciders: policies, selectors or weightings: names, or mappings of a name and options; the
            option `as` is the name used in tables, pages and folders.
        seeds: paired: a seed gives every decider the same initial weights and data order.
        out: the folder of the runs.
        baseline: the decider that the others are compared with, by its name; the first if None.
        workers: processes on this machine. With more than one, tasks, model and watch are sent to
            other processes: they have to be functions and classes of a module.
        model: makes the user's own module that each run starts from.
        tasks: tasks made in Python.
        cache: the cache folder, for encoded splits above all.
        watch: makes the watcher of each run from its configuration and a title.
    """
    from taskmix.training.run import configured

    out, shared = Path(out), configured(config, tasks)
    against = check_contestants(shared, deciders, baseline)
    jobs = [_job(shared, decider, seed, out) for seed in seeds for decider in deciders]
    runner, locks = Runner(model, tasks, cache, watch), FileLocks(out / LOCKS)
    _check_deciders(shared, jobs, runner)
    with locks.wait(SETTINGS):
        _check_settings(shared, out / SETTINGS)
    with helpers(workers - 1, run_jobs, jobs, runner, locks):
        finished = run_jobs(jobs, runner, locks)
    runs: dict[str, list[Finished]] = {}
    folders: dict[str, list[Path]] = {}
    seeds_of: dict[str, list[int]] = {}
    for job in jobs:
        runs.setdefault(job.label, []).append(finished[job.name])
        folders.setdefault(job.label, []).append(job.folder)
        seeds_of.setdefault(job.label, []).append(job.config.seed)
    looks = record_look(out, {name: len(seeds) for name, seeds in seeds_of.items()})
    return Comparison(runs, folders, against, shared.objective, seeds_of, looks)


def run_jobs(jobs: Sequence[Job], runner: Runner, locks: FileLocks) -> "dict[str, Finished]":
    """Run the jobs that no other worker has locked, until all are finished; return the scores."""
    by_name = {job.name: job for job in jobs}
    finished: dict[str, Finished] = {}
    while remaining := [name for name in by_name if name not in finished]:
        with locks.first_free(remaining) as name:
            job = by_name[name]
            title = f"{job.label}, seed {job.config.seed}"
            # A run that another worker has finished meanwhile returns its scores at once.
            finished[name] = runner.run(job.config, job.folder, title)
    return finished


def check_contestants(
    config: RunConfig, deciders: Sequence[str | Mapping[str, Any]], baseline: str | None = None
) -> str:
    """Return the name of the baseline; raise unless the names of the contestants differ."""
    contestants = [decided_by(config, each, Path(), "compare").decider for each in deciders]
    names = [label(each) for each in contestants]
    if not names:
        raise UserError("compare: expected at least one contestant, found none")
    folders = [_folder_name(each) for each in contestants]
    for name, folder in zip(names, folders, strict=True):
        if folders.count(folder) > 1:
            raise UserError(
                f"compare: expected contestants of different names, found {name} twice; give one "
                "a name of its own with as"
            )
    if baseline is not None and baseline not in names:
        raise unknown("contestant", baseline, names, "baseline")
    return baseline if baseline is not None else names[0]


def _job(shared: RunConfig, decider: str | Mapping[str, Any], seed: int, out: Path) -> Job:
    config = changed(decided_by(shared, decider, Path(), "compare"), {"seed": seed}, "compare")
    folder = out / _folder_name(config.decider) / f"seed-{seed}"
    return Job(label(config.decider), config, folder)


def _check_deciders(config: RunConfig, jobs: Sequence[Job], runner: Runner) -> None:
    """Raise if the options of a decider are wrong, hours before its turn comes."""
    from taskmix.config import build_decider
    from taskmix.training.prepare import by_name, run_info_before

    info = run_info_before(config, by_name(runner.tasks), runner.cache)
    for contestant in {job.label: job.config for job in jobs}.values():
        build_decider(contestant, info)


def _check_settings(config: RunConfig, path: Path) -> None:
    """Keep the configuration in the folder; raise if the runs there were begun with another."""
    if not path.exists():
        write_whole(path, dump(config))
        return
    known = _shared_settings(parse(read_yaml(path), str(path)))
    check_same_settings(str(path), known, _shared_settings(config), "choose another folder")


def _shared_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that all runs of a comparison agree on, on any machine."""
    settings: dict[str, Any] = config.model_dump(
        mode="json", exclude={*FAMILIES, *OF_MACHINE, "seed"}
    )
    return settings


def _folder_name(decider: Mapping[str, Any]) -> str:
    """Return the name of a contestant's folder, the same as in earlier versions."""
    name = str(decider.get("as", decider["name"]))
    if "as" not in decider:
        options = ", ".join(f"{key}={value}" for key, value in decider.items() if key != "name")
        name += f"({options})" if options else ""
    plain = "".join(c if c.isalnum() or c in "_-=.," else "-" for c in name).strip("-")
    if len(plain) <= MAX_NAME:
        return plain
    return f"{plain[:MAX_NAME]}-{blake2b(name.encode(), digest_size=4).hexdigest()}"
