"""The comparison of policies in many bandits."""

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np

from taskmix.bandit.environment import Environment
from taskmix.bandit.rollout import simulate
from taskmix.policies import (
    ActivePrioritization,
    Exp3S,
    Policy,
    Progress,
    Random,
    Stratified,
    Thompson,
)
from taskmix.policies.state import Array
from taskmix.rng import stream
from taskmix.tables import Column, Row, Table, Tabled

#: Creates a policy for an environment.
Maker = Callable[[Environment], Policy]


def _made(cls: Callable[..., Policy], environment: Environment, **options: Any) -> Policy:
    return cls(environment.tasks, **options)


def _oracle_stratified(environment: Environment) -> Policy:
    return Stratified(environment.oracle_policy())


def _progress_stratified(environment: Environment) -> Policy:
    return Stratified(Progress(environment.tasks))


#: Without lambdas, so that they can be pickled.
CONTENDERS: Mapping[str, Maker] = {
    "random": partial(_made, Random),
    "oracle": Environment.oracle_policy,
    "oracle_stratified": _oracle_stratified,
    "exp3s": partial(_made, Exp3S),
    "thompson": partial(_made, Thompson, primary="arm1"),
    "active": partial(_made, ActivePrioritization, every=20),
    "progress": partial(_made, Progress),
    "progress_stratified": _progress_stratified,
}


@dataclass(frozen=True)
class BanditStanding:
    """The result of one policy.

    Args:
        policy: the name of the policy.
        score: the final mean score: median over seeds, then mean over environments.
        closed: the closed fraction of the gap from random to oracle, median over environments.
        over_random: the number of environments with a higher median over seeds than random.
        over_oracle: the number of environments with a higher median than oracle.
    """

    policy: str
    score: float
    closed: float
    over_random: int
    over_oracle: int


@dataclass(frozen=True, eq=False, repr=False)
class BanditComparison(Tabled):
    """The results of several policies in the same bandits.

    Args:
        policies: the names of the policies, including `random` and `oracle`.
        curves: the mean score over arms, shape `(policies, environments, seeds, steps)`.
    """

    policies: tuple[str, ...]
    curves: Array

    def medians(self, policy: str) -> Array:
        """Return the median over seeds of the final score, shape `(environments,)`."""
        finals = self.curves[self.policies.index(policy), :, :, -1]
        return np.asarray(np.median(finals, axis=1))

    def standings(self) -> list[BanditStanding]:
        """Return the results, best policy first."""
        lines = [self._standing(policy) for policy in self.policies]
        return sorted(lines, key=lambda line: -line.score)

    def tables(self) -> list[Table]:
        environments = self.curves.shape[1]
        columns = [
            Column("policy"),
            Column("final score", ".4f"),
            Column("gap closed", ".2f"),
            Column("above random", lambda count: f"{count} of {environments}"),
            Column("above oracle", lambda count: f"{count} of {environments}"),
        ]
        rows: list[Row] = [
            [line.policy, line.score, line.closed, line.over_random, line.over_oracle]
            for line in self.standings()
        ]
        return [Table(columns, rows)]

    def _standing(self, policy: str) -> BanditStanding:
        random, oracle, scores = (self.medians(name) for name in ("random", "oracle", policy))
        return BanditStanding(
            policy,
            score=float(scores.mean()),
            closed=float(np.median((scores - random) / (oracle - random))),
            over_random=int(np.sum(scores > random)),
            over_oracle=int(np.sum(scores > oracle)),
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
        policies: functions that create the policies for an environment, by name; picklable if
            there are several workers. `random` and `oracle` are always included.
        arms: the number of arms of an environment.
        steps: the number of draws in a run.
        environments: the number of environments.
        seeds: the number of runs of each policy in each environment, with the same seeds.
        seed: the seed of the environments and runs.
        delay: the number of draws between a draw and its outcome.
        noise: the standard deviation of the noise in the loss of a batch.
        workers: the number of processes; it does not change the result.

    >>> comparison = compare({"random": CONTENDERS["random"]}, steps=50, environments=2, seeds=2)
    >>> comparison.policies, comparison.curves.shape
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
        # Spawned, because a forked process would inherit threads that hold locks.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            curves = list(pool.map(_curves, jobs))
    shape = (len(makers), environments, seeds, steps)
    return BanditComparison(tuple(makers), np.array(curves).reshape(shape))


def _curves(job: tuple[Maker, int, int, int, int, int, float, int]) -> Array:
    maker, arms, steps, seeds, seed, delay, noise, place = job
    environment = Environment.random(arms, steps, stream(seed, "environment", place))
    streams = [stream(seed, "draws", place, run) for run in range(seeds)]
    rollouts = [
        simulate(maker(environment), environment, steps, rng, delay, noise) for rng in streams
    ]
    return np.array([rollout.curve for rollout in rollouts])
