"""How much of the gap from RANDOM to ORACLE counterfactual policies close on the MTL bandit.

    python -m experiments.bandit_counterfactual.run [--iterations 1] [--sets 1 2 3] [--table]

With `--rise N` the reward of a step is its share of the rise of the mean score between evaluations
every N steps, instead of the paper's reward. Finished sets of environments are not run again.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from experiments.shared import Outcomes, command_line, markdown, publish
from taskmix import Fixed, Log, Random, Schedule
from taskmix.bandit import Environment, Rollout
from taskmix.offpolicy import FarPolicyWarning, improve
from taskmix.rng import stream
from taskmix.studies.counterfactual_bandit import (
    BanditRuns,
    Improvement,
    RolloutReward,
    room_left_in,
)

WEIGHTS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.5, 0.7, 1.0)
"""The entropy weights λ to compare."""


@dataclass(frozen=True, eq=False)
class Closed:
    """The part of the gap from RANDOM to ORACLE that one way to improve closed.

    Args:
        name: of the way.
        shares: the part in each environment, from medians over the seeds, shape `(environments,)`.
    """

    name: str
    shares: NDArray[np.float64]

    @property
    def median(self) -> float:
        """The median over the environments."""
        return float(np.median(self.shares))

    @property
    def wins(self) -> int:
        """The number of environments in which it beat RANDOM."""
        return int((self.shares > 0).sum())


def pooled_ways(weight: float = 0.25) -> dict[str, Improvement]:
    """Return the paper's method with one λ and three ways to pool several logs."""
    return {
        "own": lambda logs: _quietly(logs, weight),
        "balance": lambda logs: _quietly(logs, weight, pool="balance"),
        "last": lambda logs: _quietly(logs, weight, pool="last"),
    }


def weighted_ways(weights: Sequence[float] = WEIGHTS) -> dict[str, Improvement]:
    """Return one way for each entropy weight, and the one that chooses its own."""
    ways: dict[str, Improvement] = {
        f"λ = {weight}": lambda logs, weight=weight: _quietly(logs, weight)  # type: ignore[misc]
        for weight in weights
    }
    return {"default": lambda logs: improve(logs), **ways}


def phased_ways(phases: Sequence[int] = (2, 4, 8), weight: float = 0.25) -> dict[str, Improvement]:
    """Return policies that change during training, with λ chosen and with a fixed λ."""
    ways: dict[str, Improvement] = {}
    for count in phases:
        ways[f"{count} phases"] = lambda logs, count=count: improve(logs, phases=count)  # type: ignore[misc]
        ways[f"{count} phases, λ = {weight}"] = lambda logs, count=count: _quietly(  # type: ignore[misc]
            logs, weight, phases=count
        )
    return ways


def _quietly(logs: Sequence[Log], weight: float, **options: Any) -> Fixed | Schedule:
    """Improve with a λ that may be too small, as this experiment is to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarPolicyWarning)
        return improve(logs, weight, **options)


def score_rise(every: int) -> RolloutReward:
    """Return the reward that divides the rise of the mean score between evaluations equally."""

    def reward(rollout: Rollout) -> NDArray[np.float64]:
        starts = np.arange(0, len(rollout.curve), every)
        ends = np.minimum(starts + every, len(rollout.curve))
        levels = np.concatenate([[0.0], rollout.curve])
        return np.repeat((levels[ends] - levels[starts]) / (ends - starts), ends - starts)

    return reward


def counterfactual_bandit(
    ways: dict[str, Improvement],
    environments: int = 8,
    seeds: int = 10,
    arms: int = 8,
    steps: int = 1000,
    iterations: int = 2,
    seed: int = 1,
    reward: RolloutReward = room_left_in,
) -> list[Closed]:
    """Improve from a RANDOM run, run, improve from all logs, run again; and see what it closed.

    The bandit experiment of Glover and Hokamp (2019, section 4.1), over several environments.

    Args:
        ways: by name, how a policy is learned.
        environments: how many.
        seeds: runs in each.
        arms: tasks in an environment.
        steps: draws in a run.
        iterations: how often a policy is learned.
        seed: everything follows from it.
        reward: what a step was worth.
    """
    finals = {name: np.empty((environments, seeds)) for name in ("random", "oracle", *ways)}
    for e in range(environments):
        environment = Environment.random(arms, steps, stream(seed, "environment", e))
        for s in range(seeds):
            bandit = BanditRuns(environment, steps, seed, e, s)
            first = bandit.rollout("random", Random(environment.tasks))
            finals["random"][e, s] = first.final
            finals["oracle"][e, s] = bandit.rollout("oracle", environment.oracle_policy()).final
            for name, way in ways.items():
                finals[name][e, s] = bandit.improved(way, first, iterations, reward).final
    medians = {name: np.median(scores, axis=1) for name, scores in finals.items()}
    gap = medians["oracle"] - medians["random"]
    return [Closed(name, (medians[name] - medians["random"]) / gap) for name in ways]


SIZES = ("iterations", "environments", "seeds", "steps", "rise")
Settings = dict[str, Any]


def name_of(settings: Settings, number: int) -> str:
    rise = "" if settings["rise"] is None else f"-rise-{settings['rise']}"
    sizes = "-".join(f"{settings[key]}-{key}" for key in SIZES[:-1])
    return f"{sizes}{rise}-set-{number}"


def run_set(settings: Settings, number: int) -> dict[str, list[float]]:
    """Return, by way, the part of the gap closed in each environment of a set."""
    sizes = {key: settings[key] for key in SIZES[:-1]}
    reward = room_left_in if settings["rise"] is None else score_rise(settings["rise"])
    pools = pooled_ways() if settings["iterations"] > 1 else {}  # one log needs no pooling
    ways = {**weighted_ways(), **phased_ways(), **pools}
    results = counterfactual_bandit(ways, **sizes, seed=number, reward=reward)
    return {result.name: result.shares.tolist() for result in results}


def table(outcomes: Outcomes) -> str:
    def key(values: dict[str, Any]) -> str:
        return name_of(values, 0)

    stored = sorted(outcomes.values(), key=key)
    return "\n\n".join(settings_table([*group]) for _, group in groupby(stored, key))


def settings_table(stored: Sequence[dict[str, Any]]) -> str:
    """Return the table of the sets of environments that were run with the same settings."""
    first, count = stored[0], sum(values["environments"] for values in stored)
    reward = "the paper's" if first["rise"] is None else f"rise over {first['rise']}"
    sizes = ", ".join(f"{first[key]} {key}" for key in SIZES[:-1])
    head = ["policy", f"gap closed, median of {count}", "beats RANDOM"]
    head += [f"set {values['set']}" for values in stored]
    rows = []
    for name in first["closed"]:
        sets = [Closed(name, np.array(values["closed"][name])) for values in stored]
        pooled = Closed(name, np.concatenate([each.shares for each in sets]))
        by_set = [f"{each.median:.2f} ({each.wins})" for each in sets]
        rows.append([name, f"{pooled.median:.2f}", str(pooled.wins), *by_set])
    return f"{sizes}, reward: {reward}\n\n{markdown(head, rows)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    defaults = {"environments": 8, "seeds": 10, "steps": 1000, "iterations": 2}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sets", type=int, nargs="+", default=[1, 2, 3], help="of environments")
    parser.add_argument("--rise", type=int, help="steps between evaluations")
    options = parser.parse_args(arguments)
    settings = {key: getattr(options, key) for key in SIZES}
    for number in [] if options.table else options.sets:
        name = name_of(settings, number)
        if name not in options.outcomes:
            values = {**settings, "set": number, "closed": run_set(settings, number)}
            options.outcomes.add(name, values)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
