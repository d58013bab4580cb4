"""Counterfactual policies on the MTL bandit, each learned from the runs before its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskmix.bandit import Environment, Rollout, simulate
from taskmix.offpolicy import Log, improve, room_left_of
from taskmix.policies import Fixed, Policy, Random, Schedule
from taskmix.rng import stream

Improvement = Callable[[Sequence[Log]], Fixed | Schedule]
"""Learns the next policy from the logs so far, oldest first."""

RolloutReward = Callable[[Rollout], NDArray[np.float64]]
"""Returns the reward of each step of a simulated training, shape `(steps,)`."""


def room_left_in(rollout: Rollout) -> NDArray[np.float64]:
    """Return the paper's reward, equation 16."""
    return room_left_of(rollout.actions, rollout.losses)


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
            bandit = BanditRuns(environment, steps, seed, e, s, noise)
            first = bandit.rollout("random", Random(environment.tasks))
            curves[e, s] = bandit.improved(improve, first, iterations).curve
    return curves


@dataclass(frozen=True)
class BanditRuns:
    """One environment with one seed."""

    environment: Environment
    steps: int
    seed: int
    number: int
    run: int
    noise: float = 0.0

    def rollout(self, name: str, policy: Policy) -> Rollout:
        """Return the run of a policy, drawn with the random numbers of that name."""
        rng = stream(self.seed, "draws", self.number, self.run, name)
        return simulate(policy, self.environment, self.steps, rng, noise=self.noise)

    def improved(
        self,
        improvement: Improvement,
        first: Rollout,
        iterations: int,
        reward: RolloutReward = room_left_in,
    ) -> Rollout:
        """Return the run of the last of several policies, each learned from all runs before it."""
        rollouts = [first]
        for iteration in range(iterations):
            policy = improvement([_log(rollout, reward) for rollout in rollouts])
            rollouts.append(self.rollout(f"iteration {iteration}", policy))
        return rollouts[-1]


def _log(rollout: Rollout, reward: RolloutReward) -> Log:
    return Log(rollout.tasks, rollout.actions, rollout.probabilities, reward(rollout))
