"""The commands `estimate`, `improve` and `tune` as functions, with the same words."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from taskmix.config import RunConfig
from taskmix.offpolicy.curves import FLOOR, LearnedMixture
from taskmix.policies import Policy
from taskmix.studies.improve import (
    ImproveSettings,
    PolicyEstimate,
    estimate_runs,
    improve_runs,
    learn_from_scores,
)
from taskmix.studies.tune import TuneSettings, Tuning
from taskmix.studies.tune import tune as tune_config

if TYPE_CHECKING:
    from taskmix.training.watching import Watcher

Runs = Path | str | Sequence[Path | str]
Evidence = Literal["objective", "scores", "losses", "rewards"]
_MEASURES: dict[Evidence, Literal["score", "loss"]] = {"scores": "score", "losses": "loss"}


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
        trust_code: import a class of its own that a policy file names.
    """
    return estimate_runs(_paths(runs), policy, method, pool, reward, trust_code=trust_code)


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
            `objective` (the measure of the runs' objective), `scores` or `losses`. Or `rewards` of
            single draws (Glover and Hokamp 2019), which returns a `PolicyEstimate`.
        floor: the least share of a task; not for rewards.
        entropy_weight: for rewards, the weight of the policy's entropy; `auto`: from the runs.
        solver: for rewards, `exact` or `cmaes`.
        pool: for rewards, the weighting of several runs: `own`, `balance` or `last`.
        phases: for rewards, the phases of a policy that changes over the run.
        reward: for rewards, as in `estimate`.
        force: overwrite a policy file that taskmix did not write.
    """
    paths, to = _paths(runs), None if out is None else Path(out)
    if evidence != "rewards":
        return learn_from_scores(paths, to, _MEASURES.get(evidence), floor, force)
    settings = ImproveSettings(entropy_weight, solver, pool, phases, reward)
    return improve_runs(paths, to, settings, force)


def tune(
    config: RunConfig | Mapping[str, Any] | str | Path,
    runs: int = 1,
    out: Path | str | None = None,
    *,
    pilot_budget: int | None = None,
    floor: float = FLOOR,
    repeats: int = 1,
    workers: int = 1,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Tuning:
    """Run a pilot, learn better shares from its scores, run with them, and so on.

    Each run learns from all runs before it. The same call continues after an interruption, or adds
    runs.

    Args:
        config: the configuration of the runs, as `run` takes it.
        runs: the number of runs after the pilot.
        out: the folder of the runs; `studies/NAME-tuned` if None.
        pilot_budget: the steps of the pilot; those of the configuration if None.
        floor: the least share of a task.
        repeats: how often each run is made, with different seeds; the next shares are learned from
            all of them.
        workers: processes on this machine, which divide the repeats of a run among them. With more
            than one, watch has to be a function of a module.
        watch: a function that creates the watcher of a run from its configuration and a title.
    """
    from taskmix.training.run import configured

    shared = configured(config)
    folder = Path("studies") / f"{shared.name}-tuned" if out is None else Path(out)
    settings = TuneSettings(pilot_budget, floor, repeats)
    return tune_config(shared, runs, folder, settings, watch, workers)


def _paths(runs: Runs) -> list[Path]:
    return [Path(runs)] if isinstance(runs, (str, Path)) else [Path(run) for run in runs]
