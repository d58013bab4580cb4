"""Simulated logs of which the true value of a policy is known."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy import Course, Log, SmallSampleWarning, estimate
from taskmix.policies import Outcome, Policy, Progress
from taskmix.rng import stream

TASKS = ("a", "b", "c", "d")
MEANS = np.array([0.2, 0.5, 0.8, 0.4])
"""The mean reward of a step of each task; where rewards fall, at the start."""
LOGGER = np.array([0.4, 0.3, 0.2, 0.1])
POLICIES = {3: np.array([0.2, 0.25, 0.25, 0.3]), 7: np.array([0.1, 0.1, 0.1, 0.7])}
"""By its largest importance weight, a policy."""
LOGGERS: dict[str, type[Policy]] = {"progress": Progress}
"""Policies that learn."""
STORED_LOGGERS = ("worth", *LOGGERS)
"""With a policy that was removed, whose outcomes stay."""
METHODS = ("wis", "dm", "dr", "sndr")

Rewards = Literal["bernoulli", "exponential", "falling"]


@dataclass(frozen=True)
class Cell:
    """One kind of log, and one policy to estimate from it.

    Args:
        rewards: Bernoulli; exponential; or uniform between half and three halves of a mean that
            falls with the draws of the task, to about an eighth over the log.
        steps: the length of the log.
        weight: the policy's largest importance weight, one of `POLICIES`.
        rounds: the number of steps that each decision holds for.
        alike: whether all steps of a round have the same reward.
    """

    rewards: Rewards
    steps: int
    weight: int
    rounds: int
    alike: bool = False

    def simulate(self, rng: np.random.Generator) -> tuple[Log, float]:
        """Return a log, and the policy's mean reward at the states that the log visited."""
        decisions = np.repeat(np.arange(self.steps // self.rounds), self.rounds)
        drawn = rng.choice(len(TASKS), decisions[-1] + 1, p=LOGGER)
        actions = drawn[decisions]
        means = self._means(drawn)
        rewards = self._rewards(means[np.arange(self.steps), actions], rng)
        course = Course(np.zeros(1, dtype=np.int64), LOGGER[None])
        log = Log(TASKS, actions, course, rewards, decisions=decisions)
        return log, float((means @ POLICIES[self.weight]).mean())

    def _means(self, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the mean reward of each task at each step, had it been drawn there."""
        if self.rewards != "falling":
            return np.tile(MEANS, (self.steps, 1))
        one = np.eye(len(TASKS))[drawn]
        before = np.repeat((np.cumsum(one, axis=0) - one) * self.rounds, self.rounds, axis=0)
        within = np.tile(np.arange(self.rounds), len(drawn))
        left: NDArray[np.float64] = np.exp(-2 * (before + within[:, None]) / (self.steps * LOGGER))
        return MEANS * left

    def _rewards(self, means: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        chances = rng.random(len(means))
        if self.alike:
            chances = np.repeat(chances[:: self.rounds], self.rounds)
        if self.rewards == "bernoulli":
            return (chances < means).astype(np.float64)
        if self.rewards == "exponential":
            return -means * np.log1p(-chances)
        return means * (0.5 + chances)


@dataclass(frozen=True)
class LearningCell(Cell):
    """A log of a policy that learns, with falling rewards.

    The reward is the room left, 1 - exp(-loss), so the policy is told -log(1 - reward) as the loss.

    Args:
        logger: the policy, one of `LOGGERS`.
    """

    logger: str = "progress"

    def simulate(self, rng: np.random.Generator) -> tuple[Log, float]:
        policy = LOGGERS[self.logger](TASKS)
        drawn, rewards, courses = np.zeros(len(TASKS)), np.empty(self.steps), []
        means = np.empty((self.steps, len(TASKS)))
        actions = np.empty(self.steps, dtype=np.int64)
        for step in range(self.steps):
            means[step] = MEANS * np.exp(-2 * drawn / (self.steps * LOGGER))
            draw = policy.ask(rng)
            [rewards[step]] = self._rewards(means[step, [draw.index]], rng)
            actions[step] = draw.index
            courses.append(draw.probabilities)
            drawn[draw.index] += 1
            loss = -np.log(max(1 - rewards[step], 0.02))
            policy.tell(Outcome(draw, loss=loss))
        log = Log(TASKS, actions, np.array(courses), rewards)
        return log, float((means @ POLICIES[self.weight]).mean())


@dataclass(frozen=True)
class Coverage:
    """The intervals of one method in one cell.

    Args:
        logs: the number of simulated logs.
        given: the number of logs with an interval.
        covered: the number of intervals that cover the truth.
    """

    logs: int
    given: int
    covered: int

    @property
    def share(self) -> float:
        """The share of the intervals that cover the truth."""
        return self.covered / self.given


def grid(loggers: Iterable[str] = LOGGERS) -> list[Cell]:
    """Return the cells for which coverage is promised, with these policies that learn."""
    kinds: tuple[Rewards, ...] = ("bernoulli", "exponential", "falling")
    rounds = ((1, False), (10, False), (10, True))
    return [
        *(
            Cell(kind, steps, weight, *round_)
            for kind, steps, weight, round_ in product(kinds, (100, 400, 2000), POLICIES, rounds)
        ),
        *(
            LearningCell("falling", steps, weight, 1, logger=logger)
            for logger, steps, weight in product(loggers, (400, 1000), POLICIES)
        ),
    ]


def coverage(
    cell: Cell, logs: int, seed: int = 1, methods: Sequence[str] = METHODS
) -> dict[str, Coverage]:
    """Simulate logs and count, by method, how often the 95% interval covers the truth."""
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
