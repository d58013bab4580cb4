"""Outcomes that come late: what is delivered when, and what it costs a policy that learns."""

import numpy as np
import pytest

from taskmix import Outcome, Random
from taskmix.bandit import CONTENDERS, Environment, compare, simulate
from taskmix.rng import stream


class Watched(Random):
    """Writes down what it is told after how many draws."""

    def __init__(self, tasks):
        super().__init__(tasks)
        self.told = []

    def tell(self, outcome: Outcome):
        self.told.append((self.draws, outcome.draw.number, outcome.loss, outcome.gain))


def watched(delay, steps=50):
    environment = Environment.random(3, steps, stream(1, "environment"))
    policy = Watched(environment.tasks)
    return policy, simulate(policy, environment, steps, stream(1, "draws"), delay)


@pytest.mark.parametrize("delay", [0, 1, 20, 49, 80])
def test_every_outcome_is_told_once_and_as_many_draws_late(delay):
    policy, rollout = watched(delay)
    draws, numbers, losses, gains = map(list, zip(*policy.told, strict=True))
    assert numbers == list(range(1, 51))
    assert draws == [min(number + delay, 50) for number in numbers]
    assert losses == rollout.losses.tolist()
    assert gains == rollout.gains.tolist()


def test_a_policy_that_does_not_learn_is_not_touched_by_a_delay():
    assert watched(20)[1].scores.tolist() == watched(0)[1].scores.tolist()


#: By policy, how many runs in each of 8 environments; luck plays the largest part in Thompson's.
RUNS = {"exp3s": 2, "progress": 2, "thompson": 6, "active": 2}


@pytest.mark.parametrize("name", RUNS)
def test_a_delay_costs_less_than_three_hundredths(name):
    """Mean final score, against the same seeds without delay.

    Over 24 environments and 10 runs each (the table in docs/policies.md), the mean of as many runs
    as here was found 3.4 of its standard errors above the bound for Thompson and more than 8 for
    the others: a false alarm in 3,000 choices of seed.
    """
    at_once = finals(name, 0)
    for delay in (5, 20):
        assert float(np.mean(finals(name, delay) - at_once)) > -0.03


def finals(name, delay):
    places = [Environment.random(8, 1000, stream(0, "environment", place)) for place in range(8)]
    return np.array(
        [
            simulate(
                CONTENDERS[name](each), each, 1000, stream(0, "draws", place, run), delay
            ).final
            for place, each in enumerate(places)
            for run in range(RUNS[name])
        ]
    )


def test_policies_are_compared_with_the_delay_that_is_asked_for():
    policies = {"progress": CONTENDERS["progress"]}
    found = compare(policies, steps=60, environments=1, seeds=2, delay=20)
    environment = Environment.random(8, 60, stream(0, "environment", 0))
    policy = CONTENDERS["progress"](environment)
    alone = simulate(policy, environment, 60, stream(0, "draws", 0, 1), delay=20)
    assert found.curves[0, 0, 1].tolist() == alone.curve.tolist()
