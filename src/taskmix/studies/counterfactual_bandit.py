"""How much of the way from RANDOM to ORACLE counterfactual policies go, on the MTL bandit."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.bandit import Environment, Rollout, simulate
from taskmix.offpolicy import FarPolicyWarning, Log, improve, room_left_of
from taskmix.policies import Fixed, Policy, Random, Schedule
from taskmix.rng import stream

#: Learns the next policy from the logs so far, oldest first.
Improvement = Callable[[Sequence[Log]], Fixed | Schedule]

#: What each step of a simulated training was worth, shape `(steps,)`.
RolloutReward = Callable[[Rollout], NDArray[np.float64]]

#: The entropy weights that hindsight may choose from.
WEIGHTS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.5, 0.7, 1.0)


@dataclass(frozen=True, eq=False)
class Closed:
    """What one way to improve came to.

    Args:
        name: what it is called.
        shares: the part of the gap from RANDOM to ORACLE that it closed in each environment, from
            medians over the seeds, shape `(environments,)`.
    """

    name: str
    shares: NDArray[np.float64]

    @property
    def median(self) -> float:
        """The median over the environments."""
        return float(np.median(self.shares))

    @property
    def wins(self) -> int:
        """In how many environments it beat RANDOM."""
        return int((self.shares > 0).sum())


def pooled_ways(weight: float = 0.25) -> dict[str, Improvement]:
    """Return what the paper's method is measured by: one λ and three ways to use several logs."""
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
    """Policies that change in the course of training, with λ chosen and with one given."""
    ways: dict[str, Improvement] = {}
    for count in phases:
        ways[f"{count} phases"] = lambda logs, count=count: improve(logs, phases=count)  # type: ignore[misc]
        ways[f"{count} phases, λ = {weight}"] = lambda logs, count=count: _quietly(  # type: ignore[misc]
            logs, weight, phases=count
        )
    return ways


def _quietly(logs: Sequence[Log], weight: float, **options: Any) -> Fixed | Schedule:
    """Improve with a λ that may be too small: here that is what is to be found out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarPolicyWarning)
        return improve(logs, weight, **options)


def room_left_in(rollout: Rollout) -> NDArray[np.float64]:
    """Return the paper's reward, equation 16."""
    return room_left_of(rollout.actions, rollout.losses)


def score_rise(every: int) -> RolloutReward:
    """Return the reward that is the rise of the mean score, as evaluations would see it.

    Args:
        every: steps between two evaluations, which share the rise alike.
    """

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
            bandit = _Bandit(environment, steps, seed, e, s)
            first = bandit.play("random", Random(environment.tasks))
            finals["random"][e, s] = first.final
            finals["oracle"][e, s] = bandit.play("oracle", environment.oracle_policy()).final
            for name, way in ways.items():
                finals[name][e, s] = bandit.improved(way, first, iterations, reward).final
    medians = {name: np.median(scores, axis=1) for name, scores in finals.items()}
    gap = medians["oracle"] - medians["random"]
    return [Closed(name, (medians[name] - medians["random"]) / gap) for name in ways]


def counterfactual_curves(
    environments: int,
    seeds: int,
    arms: int,
    steps: int,
    seed: int,
    iterations: int = 2,
    noise: float = 0.0,
) -> NDArray[np.float64]:
    """The mean score over arms in the run of the last policy, in the bandits of `bandit.compare`.

    Each policy is what `improve` makes of all runs before it with the same seed, the first of them
    RANDOM, as in the paper. Shape `(environments, seeds, steps)`.
    """
    curves = np.empty((environments, seeds, steps))
    for e in range(environments):
        environment = Environment.random(arms, steps, stream(seed, "environment", e))
        for s in range(seeds):
            bandit = _Bandit(environment, steps, seed, e, s, noise)
            first = bandit.play("random", Random(environment.tasks))
            curves[e, s] = bandit.improved(improve, first, iterations).curve
    return curves


@dataclass(frozen=True)
class _Bandit:
    """One environment with one seed."""

    environment: Environment
    steps: int
    seed: int
    number: int
    run: int
    noise: float = 0.0

    def play(self, name: str, policy: Policy) -> Rollout:
        """Return the run of a policy, drawn with the random numbers of that name."""
        rng = stream(self.seed, "draws", self.number, self.run, name)
        return simulate(policy, self.environment, self.steps, rng, noise=self.noise)

    def improved(
        self,
        way: Improvement,
        first: Rollout,
        iterations: int,
        reward: RolloutReward = room_left_in,
    ) -> Rollout:
        """Return the run of the last of several policies, each learned from all runs before it."""
        rollouts = [first]
        for iteration in range(iterations):
            policy = way([_log(rollout, reward) for rollout in rollouts])
            rollouts.append(self.play(f"iteration {iteration}", policy))
        return rollouts[-1]


def _log(rollout: Rollout, reward: RolloutReward) -> Log:
    return Log(rollout.tasks, rollout.actions, rollout.probabilities, reward(rollout))
