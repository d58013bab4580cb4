"""The contestants of a comparison: deciders, changes of the run file, single-task trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig, changed, decided_by, label
from taskmix.errors import UserError
from taskmix.families import FAMILIES
from taskmix.training.folder import Finished
from taskmix.training.objective import objective_value

if TYPE_CHECKING:
    from taskmix.config import Objective

MAX_NAME = 80
"""Characters of a folder's name; the label of a policy with many numbers is too long for one."""
ALONE = "alone"
"""The contestant that trains each task alone, with an equal part of the budget."""
_ALONE = {"name": "random", "as": ALONE}
_SHARED = ("tasks", "budget", "objective", "seed", "name")
"""Settings that no contestant may change."""

ContestantSpec = str | Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    label: str
    config: RunConfig
    folder: Path
    name: str  # the folder's path within that of the comparison


def contestant_config(config: RunConfig, spec: ContestantSpec) -> RunConfig:
    """Return the configuration of a contestant; its decider has the contestant's name.

    >>> config = RunConfig(tasks=["a", "b"], policy="random")
    >>> other = contestant_config(config, {"as": "slow", "optimizer": {"lr": 1e-6}})
    >>> other.optimizer.lr, other.policy
    (1e-06, {'name': 'random', 'as': 'slow'})
    """
    if spec == ALONE:
        return decided_by(config, _ALONE, Path(), "compare")
    if not isinstance(spec, Mapping) or "name" in spec:
        return decided_by(config, _decider(spec, config), Path(), "compare")
    changes = dict(spec)
    name = changes.pop("as", None)
    if name is None:
        raise UserError(
            "compare: expected the key name in a decider, or as in a contestant with other"
            f" settings, found {', '.join(map(str, spec)) or 'none'}"
        )
    for key in _SHARED:
        if key in changes:
            raise UserError(f"compare: {name}: expected the run file's {key}, found another")
    deciders = [changes.pop(family) for family in FAMILIES if family in changes]
    if len(deciders) > 1:
        raise UserError(f"compare: {name}: expected one decider, found {len(deciders)}")
    decider = _decider(deciders[0], config) if deciders else config.decider
    values = merged(config.model_dump(), changes)
    decided = decided_by(changed(config, values, f"compare: {name}"), decider, Path(), "compare")
    return changed(decided, {decided.family.key: decided.decider | {"as": name}}, "compare")


def _decider(spec: ContestantSpec, config: RunConfig) -> ContestantSpec:
    """Return the decider; for the folder of an AutoSeM study, the ratio that the study found."""
    is_folder = isinstance(spec, str) and "/" in spec and not spec.endswith((".yaml", ".yml"))
    return _found_ratio(Path(spec), config) if is_folder else spec  # type: ignore[arg-type]


def _found_ratio(folder: Path, config: RunConfig) -> dict[str, Any]:
    """Return `cycle` with the ratio of an AutoSeM study; tasks outside the ratio get no batches."""
    from taskmix.studies.autosem.result import RESULT, read_result

    if not (folder / RESULT).is_file():
        found = f"no {RESULT} in it" if folder.is_dir() else "no folder of that name"
        raise UserError(
            f"compare: {folder}: expected the folder of a finished AutoSeM study, found {found}"
        )
    ratio = read_result(folder).ratio
    for task, batches in ratio.items():
        if batches and task not in config.task_names:
            raise UserError(
                f"compare: {folder}: expected a ratio of the run file's tasks,"
                f" {', '.join(config.task_names)}, found one with {task}"
            )
    batches_of = {task: ratio.get(task, 0) for task in config.task_names}
    return {"name": "cycle", "ratio": batches_of, "as": _plain(folder.resolve().name)}


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with changes, also of keys inside of sections."""
    result = dict(values)
    for key, value in changes.items():
        before = result.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return result


def check_names(contestants: Sequence[RunConfig]) -> list[str]:
    """Return the names of the contestants; raise unless they differ."""
    if not contestants:
        raise UserError("compare: expected at least one contestant, found none")
    deciders = [config.decider for config in contestants]
    folders = [folder_name(decider) for decider in deciders]
    for decider, folder in zip(deciders, folders, strict=True):
        if label(decider) == ALONE and decider != _ALONE:
            raise UserError(
                f"compare: as: expected another name than {ALONE}, which is each task alone"
            )
        if folders.count(folder) > 1:
            raise UserError(
                f"compare: expected contestants of different names, found {label(decider)} twice; "
                "give one a name of its own with as"
            )
    return [label(decider) for decider in deciders]


def jobs_of(contestant: RunConfig, seed: int, out: Path) -> list[Job]:
    """Return the runs of a contestant with one seed: one, or one for each task."""
    config = changed(contestant, {"seed": seed}, "compare")
    name = label(config.decider)
    folder = f"{folder_name(config.decider)}/seed-{seed}"
    if name != ALONE:
        return [Job(name, config, out / folder, folder)]
    # Numbered, because the plain names of two tasks may be equal.
    paths = {task: f"{folder}/{k}-{_plain(task)}" for k, task in enumerate(config.task_names, 1)}
    return [Job(name, _single(config, task), out / path, path) for task, path in paths.items()]


def _single(config: RunConfig, task: str) -> RunConfig:
    """Return the configuration of one task alone, with an equal part of the budget."""
    entries = {entry.name: entry for entry in config.tasks}
    steps = max(1, config.budget.steps // len(entries))
    values: dict[str, Any] = {
        "tasks": [entries[task]],
        "budget": config.budget.model_dump() | {"steps": steps},
    }
    if config.objective is not None:
        values["objective"] = config.objective.model_dump() | {"tasks": [task]}
    return changed(config, values, "compare")


def merged_runs(runs: Sequence[Finished], objective: "Objective | None") -> Finished:
    """Return the result of single-task trainings as that of one run; costs are summed."""
    if len(runs) == 1:
        return runs[0]
    tasks = {task: scores for run in runs for task, scores in run.tasks.items()}
    return Finished(
        max(run.step for run in runs),
        mean(scores.score for scores in tasks.values()),
        tasks,
        sum(run.forward for run in runs),
        sum(run.backward for run in runs),
        None if objective is None else objective_value(objective, tasks),
    )


def folder_name(decider: Mapping[str, Any]) -> str:
    """Return the name of a contestant's folder, the same as in earlier versions."""
    name = str(decider.get("as", decider["name"]))
    if "as" not in decider:
        shown = {k: v for k, v in decider.items() if k not in ("name", "forecast")}
        options = ", ".join(f"{key}={value}" for key, value in shown.items())
        name += f"({options})" if options else ""
    return _plain(name)


def _plain(name: str) -> str:
    plain = "".join(c if c.isalnum() or c in "_-=.," else "-" for c in name).strip("-")
    if len(plain) <= MAX_NAME:
        return plain
    return f"{plain[:MAX_NAME]}-{blake2b(name.encode(), digest_size=4).hexdigest()}"
