"""Policies side by side, in many bandits."""

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from taskmix.bandit.contenders import CONTENDERS, Maker
from taskmix.bandit.environment import Environment
from taskmix.bandit.rollout import simulate
from taskmix.rng import stream


@dataclass(frozen=True)
class BanditStanding:
    """One line of the table.

    Args:
        policy: its name.
        score: the final mean score: median over seeds, then mean over environments.
        closed: the share of the gap from RANDOM to ORACLE that it closes, median over environments.
        over_random: environments in which its median over seeds is above RANDOM's.
        over_oracle: environments in which it is above ORACLE's.
    """

    policy: str
    score: float
    closed: float
    over_random: int
    over_oracle: int


@dataclass(frozen=True, eq=False)
class BanditComparison:
    """What several policies made of the same bandits.

    Args:
        policies: their names, `random` and `oracle` among them.
        curves: the mean score over arms, shape `(policies, environments, seeds, steps)`.
    """

    policies: tuple[str, ...]
    curves: NDArray[np.float64]

    def medians(self, policy: str) -> NDArray[np.float64]:
        """Return the median over seeds of the final score, shape `(environments,)`."""
        finals = self.curves[self.policies.index(policy), :, :, -1]
        medians: NDArray[np.float64] = np.median(finals, axis=1)
        return medians

    def standings(self) -> list[BanditStanding]:
        """Return the table, best policy first."""
        lines = [self._standing(policy) for policy in self.policies]
        return sorted(lines, key=lambda line: -line.score)

    def _standing(self, policy: str) -> BanditStanding:
        chance, oracle, own = (self.medians(name) for name in ("random", "oracle", policy))
        return BanditStanding(
            policy,
            score=float(own.mean()),
            closed=float(np.median((own - chance) / (oracle - chance))),
            over_random=int(np.sum(own > chance)),
            over_oracle=int(np.sum(own > oracle)),
        )


def compare(
    policies: Mapping[str, Maker] = CONTENDERS,
    *,
    arms: int = 8,
    steps: int = 1000,
    environments: int = 8,
    seeds: int = 10,
    seed: int = 0,
    delay: int = 0,
    noise: float = 0.0,
    workers: int = 1,
) -> BanditComparison:
    """Run every policy in every environment with every seed.

    Args:
        policies: by name, what makes the policy for an environment; with more than one worker,
            functions of a module, so that they can be sent to another process. `random` and
            `oracle` are added where they are missing, as everything is measured by them.
        arms: tasks in an environment.
        steps: draws in a run.
        environments: how many to draw.
        seeds: runs of each policy in each environment; the draws of all policies are paired.
        seed: everything follows from it, whatever the number of workers.
        delay: how many draws are made between a draw and its outcome.
        noise: the standard deviation of what luck adds to the loss of a batch.
        workers: processes.

    >>> found = compare({"random": CONTENDERS["random"]}, steps=50, environments=2, seeds=2)
    >>> found.policies, found.curves.shape
    (('random', 'oracle'), (2, 2, 2, 50))
    """
    makers = {**policies, **{name: CONTENDERS[name] for name in ("random", "oracle")}}
    jobs = [
        (maker, arms, steps, seeds, seed, delay, noise, place)
        for maker, place in product(makers.values(), range(environments))
    ]
    if workers == 1:
        curves = list(map(_curves, jobs))
    else:
        # Spawned, because a copied process would inherit threads that hold locks.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            curves = list(pool.map(_curves, jobs))
    shape = (len(makers), environments, seeds, steps)
    return BanditComparison(tuple(makers), np.array(curves).reshape(shape))


def _curves(job: tuple[Maker, int, int, int, int, int, float, int]) -> NDArray[np.float64]:
    maker, arms, steps, seeds, seed, delay, noise, place = job
    environment = Environment.random(arms, steps, stream(seed, "environment", place))
    streams = [stream(seed, "draws", place, run) for run in range(seeds)]
    rollouts = [
        simulate(maker(environment), environment, steps, rng, delay, noise) for rng in streams
    ]
    return np.array([rollout.curve for rollout in rollouts])
