"""Estimating and improving policies from the journals of finished runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml

from taskmix.config import RunConfig, decided_by, decider_class, options_of, read_yaml
from taskmix.errors import UserError, unknown
from taskmix.families import FAMILIES
from taskmix.files import write_whole
from taskmix.journal import Opening, read_latest
from taskmix.offpolicy import (
    Estimate,
    Log,
    Reward,
    entropy_weight,
    estimate,
    estimate_improved,
    improved_shares,
    mean_shares,
    prediction_gain,
    room_left,
)
from taskmix.policies import Policy
from taskmix.run_info import RunInfo
from taskmix.training.folder import JOURNAL, SCORES

if TYPE_CHECKING:
    from taskmix.training.watching import Watcher

REWARDS: Mapping[str, Reward] = {"room_left": room_left, "prediction_gain": prediction_gain}
SETTINGS = "improve.yaml"
#: The first line of a policy file, by which one that taskmix wrote is known; `digest` is the rest's.
MARK = "# Written by taskmix improve ({digest}); a file that was changed since is not overwritten."


@dataclass(frozen=True)
class ImproveSettings:
    """How policies are learned from runs.

    Args:
        entropy_weight: λ, or `auto`.
        solver: `exact` or `cmaes`.
        pool: `own`, `balance` or `last`.
        phases: more than one for a policy that changes in the course of training.
        reward: `room_left` (equation 16 of Glover and Hokamp, 2019) or `prediction_gain`.
    """

    entropy_weight: float | Literal["auto"] = "auto"
    solver: str = "exact"
    pool: str = "own"
    phases: int = 1
    reward: str = "room_left"


@dataclass(frozen=True)
class Share:
    """A task's part of the draws.

    Args:
        task: its name.
        before: how much of the logged draws it had.
        now: how much of them the policy gives it, on the mean over the run.
    """

    task: str
    before: float
    now: float


@dataclass(frozen=True)
class PolicyEstimate:
    """A policy, and what the journals say of it.

    Args:
        policy: as a run file's `policy:` takes it.
        shares: of each task.
        earned: the mean reward of a logged step.
        estimate: what the policy would have earned at the states that the runs visited; for one
            that was learned here, by draws that it was not learned from.
        steps: how many were logged.
        entropy_weight: the λ it was learned with; None if it was not learned here.
    """

    policy: Mapping[str, Any]
    shares: tuple[Share, ...]
    earned: float
    estimate: Estimate
    steps: int
    entropy_weight: float | None = None


@dataclass(frozen=True)
class Stage:
    """One run of the loop.

    Args:
        folder: of the run.
        learned: the policy that it followed; None for the first run.
    """

    folder: Path
    learned: PolicyEstimate | None


def logs_of(runs: Sequence[Path], reward: str = "room_left") -> list[Log]:
    """Return the logs of run folders, or of journals."""
    if reward not in REWARDS:
        raise unknown("reward", reward, REWARDS, "reward")
    return [Log.from_journal(run, REWARDS[reward]) for run in runs]


def read_policy(path: Path, run: Path) -> tuple[dict[str, Any], Policy]:
    """Return a policy file, and its policy as it would be in this run."""
    spec = read_yaml(path)
    if "name" not in spec:
        raise UserError(f"{path}: expected the key name, found {', '.join(spec) or 'none'}")
    return spec, _built(spec, run, str(path))


def write_policy(
    path: Path, shares: Sequence[Mapping[str, float]], force: bool = False
) -> dict[str, Any]:
    """Write what a run file's `policy:` takes: one distribution, or one for each phase.

    Args:
        path: the policy file.
        shares: by task its probability, for each phase.
        force: overwrite a file that `taskmix improve` did not write, or that was changed since.
    """
    check_free(path, force)
    spec: dict[str, Any] = (
        {"name": "fixed", "probabilities": dict(shares[0])}
        if len(shares) == 1
        else {"name": "schedule", "phases": [dict(phase) for phase in shares]}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)
    write_whole(path, f"{_mark(text)}\n{text}")
    return spec


def check_free(path: Path, force: bool = False) -> None:
    """Refuse to write over a file that is not a policy file as `taskmix improve` wrote it."""
    if force or not path.exists():
        return
    found = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    first, _, rest = found.partition("\n")
    if first != _mark(rest):
        raise UserError(
            f"{path}: expected no file, or one that taskmix improve wrote, found another; choose "
            "another name, or overwrite it with --force"
        )


def _mark(text: str) -> str:
    return MARK.format(digest=blake2b(text.encode(), digest_size=8).hexdigest())


def estimate_runs(
    runs: Sequence[Path],
    policy: Path,
    method: str = "wis",
    pool: str = "own",
    reward: str = "room_left",
) -> PolicyEstimate:
    """Return what a policy file's policy would have earned in these runs."""
    logs = logs_of(runs, reward)
    spec, built = read_policy(policy, runs[0])
    result = estimate(logs, built, method, pool=pool)
    return _estimated(spec, mean_shares(logs, built, pool), logs, result)


def improve_runs(
    runs: Sequence[Path], to: Path, settings: ImproveSettings | None = None, force: bool = False
) -> PolicyEstimate:
    """Learn a policy from runs, oldest first, and write it to a policy file.

    Args:
        runs: run folders or journals.
        to: the policy file.
        settings: how the policy is learned.
        force: overwrite a file that `taskmix improve` did not write.
    """
    check_free(to, force)
    settings = settings or ImproveSettings()
    logs = logs_of(runs, settings.reward)
    how = (settings.solver, settings.pool, settings.phases)
    weight = settings.entropy_weight
    shares = improved_shares(logs, weight, *how)
    result = estimate_improved(logs, weight, *how)
    spec = write_policy(to, shares, force)
    now = mean_shares(logs, _built(spec, runs[0], str(to)), settings.pool)
    used = entropy_weight(logs, *how) if weight == "auto" else weight
    return _estimated(spec, now, logs, result, used)


def improve_loop(
    config: RunConfig,
    iterations: int,
    out: Path,
    settings: ImproveSettings | None = None,
    force: bool = False,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> list[Stage]:
    """Run, improve from all runs so far, run again; what is done already is not done again.

    The first run is in `out/run-0`; policy i is learned from the runs before it, written to
    `out/policy-i.yaml`, and followed by the run in `out/run-i`. Each run has a seed of its own, so
    that pooled logs do not tell the same chances twice.

    Args:
        config: the first run, with the policy to start from.
        iterations: how often to improve.
        out: the folder of it all.
        settings: how the policies are learned.
        force: overwrite policy files that `taskmix improve` did not write.
        watch: makes the watcher of each run from its configuration and a title.
    """
    settings = settings or ImproveSettings()
    _same_settings(out, settings)
    folders = [out / f"run-{i}" for i in range(iterations + 1)]
    _run(config, folders[0], watch)
    stages = [Stage(folders[0], None)]
    for i in range(1, iterations + 1):
        learned = improve_runs(folders[:i], out / f"policy-{i}.yaml", settings, force)
        fresh = config.model_copy(update={"seed": config.seed + i})
        again = decided_by(fresh, learned.policy, out, f"policy-{i}.yaml")
        _run(again, folders[i], watch)
        stages.append(Stage(folders[i], learned))
    return stages


def _run(
    config: RunConfig, folder: Path, watch: "Callable[[RunConfig, str], Watcher] | None"
) -> None:
    """Run a configuration in a folder, unless that is done."""
    from taskmix.training.run import run

    if not (folder / SCORES).exists():
        watchers = [watch(config, folder.name)] if watch is not None else []
        run(config, folder, resume=True, watchers=watchers)


def _same_settings(out: Path, settings: ImproveSettings) -> None:
    """Keep the settings in the folder; refuse to go on with others."""
    kept = out / SETTINGS
    if kept.exists() and read_yaml(kept) != asdict(settings):
        raise UserError(
            f"{kept}: expected the settings that this loop was begun with, found others asked for; "
            "choose another folder"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_whole(kept, yaml.safe_dump(asdict(settings), sort_keys=False))


def _built(spec: Mapping[str, Any], run: Path, where: str) -> Policy:
    try:
        cls = decider_class(FAMILIES["policy"], spec, str(Path.cwd()))
        policy = cls.for_run(_run_info(run), **options_of(spec))
    except (TypeError, ValueError, KeyError, UserError) as error:
        raise UserError(f"{where}: {error}") from None
    assert isinstance(policy, Policy)
    return policy


def _run_info(run: Path) -> RunInfo:
    """Return what the run told its policy, from its journal."""
    path = run / JOURNAL if run.is_dir() else run
    opening = next(iter(read_latest(path)), None)
    if not isinstance(opening, Opening):
        raise UserError(f"{path}: expected the run's description in the first line, found none")
    sizes = {task: opening.sizes.get(task, 1) for task in opening.tasks}
    steps, batch = opening.budget.get("steps", 1), opening.budget.get("batch", 1)
    return RunInfo(sizes, steps, batch, tuple(opening.objective or ()), opening.batches or {})


def _estimated(
    spec: Mapping[str, Any],
    now: Mapping[str, float],
    logs: Sequence[Log],
    result: Estimate,
    weight: float | None = None,
) -> PolicyEstimate:
    steps = sum(len(log) for log in logs)
    tasks = logs[0].tasks
    drawn = np.sum([log.reordered(tasks).drawn() for log in logs], axis=0)
    shares = tuple(
        Share(task, count / steps, now[task])
        for task, count in zip(tasks, drawn.tolist(), strict=True)
    )
    earned = sum(float(log.rewards.sum()) for log in logs) / steps
    return PolicyEstimate(spec, shares, earned, result, steps, weight)
