"""Estimate and improve policies from the journals of finished runs."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml

from taskmix.config import RunConfig, decided_by, decider_class, is_own, options_of, read_yaml
from taskmix.errors import UserError, unknown, untrusted
from taskmix.families import FAMILIES
from taskmix.files import write_whole
from taskmix.offpolicy import (
    Estimate,
    Log,
    Reward,
    absolute_advantage,
    estimate_improved,
    improved_shares,
    mean_reward,
    mean_shares,
    prediction_gain,
    room_left,
)
from taskmix.offpolicy import entropy_weight as chosen_weight
from taskmix.offpolicy import estimate as estimate_logs
from taskmix.offpolicy.curves import (
    FLOOR,
    LearnedMixture,
    Measure,
    Promise,
    RateSchedule,
    ScoredRun,
    learn_mixture,
)
from taskmix.offpolicy.log import usual_reward
from taskmix.policies import Policy
from taskmix.run_info import RunInfo
from taskmix.studies.workers import Runner, keep_settings
from taskmix.tables import Column, Row, Table, Tabled

if TYPE_CHECKING:
    from taskmix.training.watching import Watcher

REWARDS: Mapping[str, Reward] = {"auto": usual_reward} | {
    reward.__name__: reward
    for reward in (room_left, prediction_gain, mean_reward, absolute_advantage)
}
Runs = Path | str | Sequence[Path | str]
Evidence = Literal["objective", "scores", "losses", "rewards"]
_MEASURES: Mapping[str, Measure] = {"scores": "score", "losses": "loss"}
SETTINGS = "improve.yaml"
FIRST_LINE = (
    "# Written by taskmix improve ({hash}); a file that was changed since is not overwritten."
)
"""Of a policy file, with a hash of the other lines: tells a file of ours from a user's."""


@dataclass(frozen=True)
class ImproveSettings:
    """The settings of `taskmix.offpolicy.improve`, and the name of the reward."""

    entropy_weight: float | Literal["auto"] = "auto"
    solver: str = "exact"
    pool: str = "own"
    phases: int = 1
    reward: str = "auto"


@dataclass(frozen=True)
class Share:
    """A task's share of the logged draws, and its mean share under the policy."""

    task: str
    before: float
    now: float


@dataclass(frozen=True, repr=False)
class PolicyEstimate(Tabled):
    """A policy, and the estimate of its mean reward in the states that the runs visited.

    The estimate of a policy that was learned here is from draws that it was not learned from.
    """

    policy: Mapping[str, Any]
    shares: tuple[Share, ...]
    earned: float  # the mean reward of a logged step
    estimate: Estimate
    steps: int
    entropy_weight: float | None = None  # None for a policy that was not learned here

    def tables(self) -> list[Table]:
        """Return the tasks' shares of the draws and under the policy, with the estimate."""
        estimate = self.estimate
        interval = f"no interval: {estimate.reason}"
        if estimate.interval is not None:
            interval = "95% interval {:.4f} to {:.4f}".format(*estimate.interval)
        learned = self.entropy_weight is not None
        source = ", by draws it was not learned from" if learned else ""
        notes = [
            f"Reward of a step: {self.earned:.4f} earned, {estimate.value:.4f} estimated for this "
            f"policy ({interval}){source}.",
            *self._doubts(),
            "The estimate is for the models of these runs; training with this policy changes them.",
            f"Effective sample size: {estimate.effective_sample_size:.1f} of {estimate.decisions} "
            f"decisions ({self.steps} steps).",
        ]
        if learned:
            notes.append(f"Entropy weight: {self.entropy_weight:g}.")
        columns = [
            Column("task"),
            Column("drawn", ".4f"),
            Column("learned share" if learned else "this policy", ".4f"),
        ]
        rows: list[Row] = [[share.task, share.before, share.now] for share in self.shares]
        return [Table(columns, rows, notes=tuple(notes))]

    def _doubts(self) -> list[str]:
        """Return a sentence if the policy may be as good as the one that was logged."""
        interval = self.estimate.interval
        if interval is None:
            return ["Without an interval this is no evidence that the policy is better or worse."]
        if interval[0] <= self.earned <= interval[1]:
            return [
                "The interval contains the reward that was earned: no evidence that the policy is"
                " better or worse."
            ]
        return []


@dataclass(frozen=True)
class Stage:
    """One run of the loop, and the policy that it followed if that was learned."""

    folder: Path
    learned: PolicyEstimate | None


def logs_of(runs: Runs, reward: str) -> tuple[list[Log], RunInfo]:
    """Return the logs of run folders or journals, and the description of the first run."""
    if reward not in REWARDS:
        raise unknown("reward", reward, REWARDS, "reward")
    logs = [Log.from_journal(run, REWARDS[reward]) for run in _paths(runs)]
    info = logs[0].info
    assert info is not None  # a journal begins with it
    return logs, info


def policy_of(
    policy: Policy | Mapping[str, Any] | str | Path, info: RunInfo, *, trust_code: bool = False
) -> tuple[Mapping[str, Any], Policy]:
    """Return the specification of a policy and the policy itself, as it would be in a run."""
    if isinstance(policy, Policy):
        return {"name": policy.name}, policy
    if isinstance(policy, Path) or (isinstance(policy, str) and policy.endswith((".yaml", ".yml"))):
        return read_policy(Path(policy), info, trust_code=trust_code)
    if isinstance(policy, str):
        policy = {"name": policy}
    is_named = isinstance(policy.get("name"), str)  # else a probability, perhaps of the task `name`
    spec = policy if is_named else {"name": "fixed", "probabilities": dict(policy)}
    return spec, _built(spec, info, "policy")


def read_policy(
    path: Path, info: RunInfo, *, trust_code: bool = False
) -> tuple[dict[str, Any], Policy]:
    """Return the content of a policy file, and the policy that it makes in a run."""
    spec = read_yaml(path)
    if "name" not in spec:
        raise UserError(f"{path}: expected the key name, found {', '.join(spec) or 'none'}")
    name = str(spec["name"])
    if is_own(name) and not trust_code and name.partition(":")[0] not in sys.modules:
        raise untrusted(name, str(path))
    return spec, _built(spec, info, str(path))


def policy_spec(shares: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the specification of a policy with these probabilities in each phase."""
    if len(shares) == 1:
        return {"name": "fixed", "probabilities": _rounded(shares[0])}
    return {"name": "schedule", "phases": [_rounded(phase) for phase in shares]}


def _rounded(shares: Mapping[str, float]) -> dict[str, float]:
    """Return shares without the errors of floating-point sums, such as 0.09144000000000001."""
    return {task: round(share, 10) for task, share in shares.items()}


def write_policy(
    path: Path, shares: Sequence[Mapping[str, float]], promise: Promise | None = None
) -> dict[str, Any]:
    """Write a policy file with the probabilities of each phase, and return its content.

    Args:
        path: of the file.
        shares: the probabilities of each phase.
        promise: the forecast, which the report of a run with this file shows.
    """
    spec = policy_spec(shares)
    if promise is not None:
        spec["forecast"] = asdict(promise)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)
    write_whole(path, f"{_first_line(text)}\n{text}")
    return spec


def check_overwrite(path: Path) -> None:
    """Raise if the file is no policy file of ours, or was changed since it was written."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    first, _, rest = text.partition("\n")
    if first != _first_line(rest):
        raise UserError(
            f"{path}: expected no file, or one that taskmix improve wrote, found another; choose "
            "another name, or overwrite it with --force"
        )


def _first_line(text: str) -> str:
    return FIRST_LINE.format(hash=blake2b(text.encode(), digest_size=8).hexdigest())


def estimate(
    runs: Runs,
    policy: Policy | Mapping[str, Any] | str | Path,
    *,
    method: str = "wis",
    pool: str = "own",
    reward: str = "auto",
    trust_code: bool = False,
) -> PolicyEstimate:
    """Estimate the reward of a policy at the states that finished runs visited.

    `taskmix.offpolicy.estimate` does the same for logs that are no journals.

    Args:
        runs: a run folder or journal, or several of the same tasks.
        policy: a policy, its name, a mapping of its name and options, the probability of each task,
            or the path of a policy file. A policy that learns is replayed on the journals.
        method: `is`, `wis`, `clipped_is`, `dm`, `dr`, `sndr` or `switch_dr`.
        pool: the weighting of several runs: `own` or `balance`.
        reward: `room_left`, `prediction_gain`, `mean_reward` or `absolute_advantage`; `auto` is
            `mean_reward` for journals with rewards and no losses, and `room_left` for others.
        trust_code: import a class of its own that a policy file names, also from the working
            directory.
    """
    logs, info = logs_of(runs, reward)
    spec, built = policy_of(policy, info, trust_code=trust_code)
    result = estimate_logs(logs, built, method, pool=pool)
    return _estimated(spec, mean_shares(logs, built, pool), logs, result)


def improve(
    runs: Runs,
    out: Path | str | None = None,
    *,
    evidence: Evidence = "objective",
    floor: float = FLOOR,
    entropy_weight: float | Literal["auto"] = "auto",
    solver: str = "exact",
    pool: str = "own",
    phases: int = 1,
    reward: str = "auto",
    force: bool = False,
) -> LearnedMixture | PolicyEstimate:
    """Learn a better mixture or policy from finished runs.

    `taskmix.offpolicy.improve` learns from logs that are no journals.

    Args:
        runs: a run folder or journal, or several of the same tasks, oldest first.
        out: the policy file to write, which a run file can name as its policy; none if None.
        evidence: fits learning curves to the evaluations and returns a `LearnedMixture`:
            `objective` (the measure of the last run's objective), `scores` or `losses`. Or
            `rewards` of single draws (Glover and Hokamp 2019), which returns a `PolicyEstimate`.
        floor: the least share of a task; not for rewards.
        entropy_weight: for rewards, the weight of the policy's entropy; `auto`: from the runs.
        solver: for rewards, `exact` or `cmaes`.
        pool: for rewards, the weighting of several runs: `own`, `balance` or `last`.
        phases: for rewards, the phases of a policy that changes over the run.
        reward: for rewards, as in `estimate`.
        force: overwrite a policy file that taskmix did not write.
    """
    to = None if out is None else Path(out)
    if evidence == "rewards":
        settings = ImproveSettings(entropy_weight, solver, pool, phases, reward)
        return improve_from_rewards(runs, to, settings, force)
    if to is not None and not force:
        check_overwrite(to)
    scored = _scored(_paths(runs), _MEASURES.get(evidence))
    mixture = learn_mixture(scored, floor=floor)
    if to is not None:
        write_policy(to, [mixture.shares], mixture.promise(scored[-1].schedule.steps))
    return mixture


def improve_from_rewards(
    runs: Runs, to: Path | None, settings: ImproveSettings, force: bool = False
) -> PolicyEstimate:
    """Learn a policy from run folders or journals, oldest first, and write a policy file."""
    if to is not None and not force:
        check_overwrite(to)
    logs, info = logs_of(runs, settings.reward)
    how = (settings.solver, settings.pool, settings.phases)
    weight = settings.entropy_weight
    shares = improved_shares(logs, weight, *how)
    result = estimate_improved(logs, weight, *how)
    spec = policy_spec(shares) if to is None else write_policy(to, shares)
    now = mean_shares(logs, _built(spec, info, str(to or "policy")), settings.pool)
    used = chosen_weight(logs, *how) if weight == "auto" else weight
    return _estimated(spec, now, logs, result, used)


def _scored(runs: Sequence[Path], measure: Measure | None = None) -> list[ScoredRun]:
    """Return the evaluations of runs; their measure is that of the last one's objective if None."""
    last = ScoredRun.from_journal(runs[-1], measure)
    return [*(ScoredRun.from_journal(run, last.measure) for run in runs[:-1]), last]


def _paths(runs: Runs) -> list[Path]:
    paths = [Path(runs)] if isinstance(runs, (str, Path)) else [Path(run) for run in runs]
    if not paths:
        raise UserError("runs: expected at least one, found none")
    return paths


def forecast(config: RunConfig, tasks: Sequence[str], runs: Sequence[Path]) -> LearnedMixture:
    """Forecast a run with the budget of a configuration from the scores of earlier runs.

    Args:
        config: of the run to come.
        tasks: the names of its tasks.
        runs: run folders or journals of the same tasks, oldest first.
    """
    scored = [run.reordered(tasks) for run in _scored(runs)]
    targets = config.objective.tasks if config.objective else tasks
    return learn_mixture(scored, schedule_of(config), targets)


def schedule_of(config: RunConfig) -> RateSchedule:
    """Return the budget of a configuration, and the learning rate's course over it."""
    budget = config.budget
    return RateSchedule(budget.steps, budget.tokens or budget.batch, config.optimizer.warmup)


def improve_loop(
    config: RunConfig,
    iterations: int,
    out: Path,
    settings: ImproveSettings | None = None,
    force: bool = False,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> list[Stage]:
    """Run, improve from all runs so far, run again; finished runs are not run again.

    The first run is in `out/run-0`; policy i is learned from the runs before it, written to
    `out/policy-i.yaml`, and followed by the run in `out/run-i`. Each run has another seed, so that
    the pooled logs are independent samples.
    """
    settings, runner = settings or ImproveSettings(), Runner(watch=watch)
    if settings.reward == "auto":
        settings = replace(settings, reward="room_left")  # the runs of a run file have losses
    keep_settings(out / SETTINGS, settings)
    folders = [out / f"run-{i}" for i in range(iterations + 1)]
    runner.run(config, folders[0], folders[0].name)
    stages = [Stage(folders[0], None)]
    for i in range(1, iterations + 1):
        learned = improve_from_rewards(folders[:i], out / f"policy-{i}.yaml", settings, force)
        reseeded = config.model_copy(update={"seed": config.seed + i})
        followed = decided_by(reseeded, learned.policy, out, f"policy-{i}.yaml")
        runner.run(followed, folders[i], folders[i].name)
        stages.append(Stage(folders[i], learned))
    return stages


def _built(spec: Mapping[str, Any], info: RunInfo, where: str) -> Policy:
    try:
        cls = decider_class(FAMILIES["policy"], spec, str(Path.cwd()))
        policy = cls.for_run(info, **options_of(spec))
    except (TypeError, ValueError, KeyError, UserError) as error:
        raise UserError(f"{where}: {error}") from None
    assert isinstance(policy, Policy)
    return policy


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
