"""How much of the way from RANDOM to ORACLE counterfactual policies go, on the MTL bandit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bursar.bandit import Environment, simulate
from bursar.offpolicy import Log, improve, room_left_of
from bursar.policies import Fixed, Policy, Random, Schedule
from bursar.rng import stream

#: Learns the next policy from the logs so far, oldest first.
Improvement = Callable[[Sequence[Log]], Fixed | Schedule]

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


def fixed_ways() -> dict[str, Improvement]:
    """What the paper's method is measured by: λ = 0.25 and three ways to use several logs."""
    return {
        "own": lambda logs: improve(logs),
        "balance": lambda logs: improve(logs, pool="balance"),
        "last": lambda logs: improve(logs, pool="last"),
    }


def weighted_ways(weights: Sequence[float] = WEIGHTS) -> dict[str, Improvement]:
    """One way for each entropy weight, and the one that chooses its own."""
    ways: dict[str, Improvement] = {
        f"λ = {weight}": lambda logs, weight=weight: improve(logs, weight)  # type: ignore[misc]
        for weight in weights
    }
    return {"auto": lambda logs: improve(logs, "auto"), **ways}


def phased_ways(phases: Sequence[int] = (2, 4, 8)) -> dict[str, Improvement]:
    """Policies that change in the course of training."""
    return {
        f"{count} phases": lambda logs, count=count: improve(logs, phases=count)  # type: ignore[misc]
        for count in phases
    }


def counterfactual_bandit(
    ways: dict[str, Improvement],
    environments: int = 8,
    seeds: int = 10,
    arms: int = 8,
    steps: int = 1000,
    iterations: int = 2,
    seed: int = 1,
) -> list[Closed]:
    """Improve from a RANDOM run, run, improve from all logs, run again; and see what it closed.

    The bandit experiment of Glover and Hokamp (2019, section 4.1), over several environments.
    """
    finals = {name: np.empty((environments, seeds)) for name in ("random", "oracle", *ways)}
    for e in range(environments):
        environment = Environment.random(arms, steps, stream(seed, "environment", e))
        for s in range(seeds):
            bandit = _Bandit(environment, steps, seed, e, s)
            first, finals["random"][e, s] = bandit.play("random", Random(environment.tasks))
            finals["oracle"][e, s] = bandit.play("oracle", environment.oracle_policy())[1]
            for name, way in ways.items():
                finals[name][e, s] = bandit.improved(way, first, iterations)
    medians = {name: np.median(scores, axis=1) for name, scores in finals.items()}
    gap = medians["oracle"] - medians["random"]
    return [Closed(name, (medians[name] - medians["random"]) / gap) for name in ways]


@dataclass(frozen=True)
class _Bandit:
    """One environment with one seed."""

    environment: Environment
    steps: int
    seed: int
    number: int
    run: int

    def play(self, name: str, policy: Policy) -> tuple[Log, float]:
        """The log and the final score of a policy, drawn with the random numbers of that name."""
        rng = stream(self.seed, "draws", self.number, self.run, name)
        rollout = simulate(policy, self.environment, self.steps, rng)
        rewards = room_left_of(rollout.actions, rollout.losses)
        return Log(rollout.tasks, rollout.actions, rollout.probabilities, rewards), rollout.final

    def improved(self, way: Improvement, first: Log, iterations: int) -> float:
        """The final score of the last of several policies, each learned from all logs before it."""
        logs = [first]
        for iteration in range(iterations):
            log, final = self.play(f"iteration {iteration}", way(logs))
            logs.append(log)
        return final
