"""How often the intervals of off-policy estimates cover the truth, where the truth is known."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy import (
    Course,
    Estimate,
    FarPolicyWarning,
    Log,
    SmallSampleWarning,
    estimate,
    estimate_improved,
    improve,
)
from taskmix.rng import stream

TASKS = ("a", "b", "c", "d")
#: What a step of each task earns on the mean; where rewards fall, at the start.
MEANS = np.array([0.2, 0.5, 0.8, 0.4])
LOGGER = np.array([0.4, 0.3, 0.2, 0.1])
#: By the largest importance weight, a policy that has it.
POLICIES = {3: np.array([0.2, 0.25, 0.25, 0.3]), 7: np.array([0.1, 0.1, 0.1, 0.7])}
METHODS = ("wis", "dm", "dr", "sndr")

Rewards = Literal["bernoulli", "exponential", "falling"]


@dataclass(frozen=True)
class Cell:
    """One kind of log, and one policy to be judged by it.

    Args:
        rewards: 0 or 1; or exponential; or even between half and three halves of a mean that falls
            with the draws of the task, to about an eighth in the course of the log.
        steps: how many there are in the log.
        weight: the policy's largest importance weight, one of `POLICIES`.
        rounds: how many steps each decision holds for.
        alike: whether all steps of a round earn the same, instead of a reward of their own.
    """

    rewards: Rewards
    steps: int
    weight: int
    rounds: int
    alike: bool = False

    def simulate(self, rng: np.random.Generator) -> tuple[Log, float]:
        """Return a log, and what a step of the policy earns at the states that the log visited."""
        decisions = np.repeat(np.arange(self.steps // self.rounds), self.rounds)
        drawn = rng.choice(len(TASKS), decisions[-1] + 1, p=LOGGER)
        actions = drawn[decisions]
        means = self._means(drawn)
        rewards = self._rewards(means[np.arange(self.steps), actions], rng)
        course = Course(np.zeros(1, dtype=np.int64), LOGGER[None])
        log = Log(TASKS, actions, course, rewards, decisions=decisions)
        return log, float((means @ POLICIES[self.weight]).mean())

    def _means(self, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what each task would have earned at each step, had its round been given to it."""
        if self.rewards != "falling":
            return np.tile(MEANS, (self.steps, 1))
        one = np.eye(len(TASKS))[drawn]
        before = np.repeat((np.cumsum(one, axis=0) - one) * self.rounds, self.rounds, axis=0)
        within = np.tile(np.arange(self.rounds), len(drawn))
        left: NDArray[np.float64] = np.exp(-2 * (before + within[:, None]) / (self.steps * LOGGER))
        return MEANS * left

    def _rewards(self, means: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        chances = rng.random(self.steps)
        if self.alike:
            chances = np.repeat(chances[:: self.rounds], self.rounds)
        if self.rewards == "bernoulli":
            return (chances < means).astype(np.float64)
        if self.rewards == "exponential":
            return -means * np.log1p(-chances)
        return means * (0.5 + chances)


@dataclass(frozen=True)
class Coverage:
    """What came of the intervals of one method in one cell.

    Args:
        logs: how many were simulated.
        given: for how many of them there was an interval.
        covered: how many of these held the truth.
    """

    logs: int
    given: int
    covered: int

    @property
    def share(self) -> float:
        """The share of the intervals that held the truth."""
        return self.covered / self.given


def grid() -> list[Cell]:
    """Return where coverage is promised: 54 kinds of logs."""
    kinds: tuple[Rewards, ...] = ("bernoulli", "exponential", "falling")
    rounds = ((1, False), (10, False), (10, True))
    return [
        Cell(kind, steps, weight, *round_)
        for kind, steps, weight, round_ in product(kinds, (100, 400, 2000), POLICIES, rounds)
    ]


def coverage(
    cell: Cell, logs: int, seed: int = 1, methods: Sequence[str] = METHODS
) -> dict[str, Coverage]:
    """Simulate logs and count, by method, how often the 95% interval holds the truth."""
    rng = stream(seed, "coverage", repr(cell))
    policy = dict(zip(TASKS, POLICIES[cell.weight].tolist(), strict=True))
    given, covered = dict.fromkeys(methods, 0), dict.fromkeys(methods, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)
        for _ in range(logs):
            log, truth = cell.simulate(rng)
            for method in methods:
                interval = estimate(log, policy, method).interval
                if interval is not None:
                    given[method] += 1
                    covered[method] += interval[0] <= truth <= interval[1]
    return {method: Coverage(logs, given[method], covered[method]) for method in methods}


@dataclass(frozen=True)
class Promise:
    """What was promised of learned policies where all tasks are alike, so that none earns more.

    Args:
        gain: by how much the estimate was above what every policy earns, on the mean over logs.
        covered: for what share of the logs the 95% interval held the truth.
    """

    gain: float
    covered: float


def promises(
    tasks: int, entropy_weight: float | Literal["auto"], logs: int, steps: int = 1000, seed: int = 1
) -> tuple[Promise, Promise]:
    """Learn from logs of tasks that are alike, and judge by the same log and cross-fitted."""
    rng = stream(seed, "alike", tasks)
    names = [f"task{k}" for k in range(tasks)]
    found: tuple[list[Estimate], list[Estimate]] = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)
        warnings.simplefilter("ignore", FarPolicyWarning)
        for _ in range(logs):
            course = Course(np.zeros(1, dtype=np.int64), np.full((1, tasks), 1 / tasks))
            log = Log(names, rng.integers(0, tasks, steps), course, rng.random(steps))
            found[0].append(estimate(log, improve(log, entropy_weight)))
            found[1].append(estimate_improved(log, entropy_weight))
    return _promise(found[0], 0.5), _promise(found[1], 0.5)


def _promise(estimates: Sequence[Estimate], truth: float) -> Promise:
    gain = float(np.mean([found.value - truth for found in estimates]))
    intervals = [found.interval for found in estimates if found.interval is not None]
    covered = float(np.mean([low <= truth <= high for low, high in intervals]))
    return Promise(gain, covered)
