"""The bandit experiment with counterfactual policies, small."""

import numpy as np
import pytest

from experiments.bandit_counterfactual.run import (
    counterfactual_bandit,
    phased_ways,
    pooled_ways,
    score_rise,
    weighted_ways,
)
from taskmix import Random
from taskmix.bandit import Environment, simulate
from taskmix.rng import stream

SMALL = {"environments": 3, "seeds": 2, "steps": 500}


def test_pooled_logs_help_where_the_newest_log_alone_misleads() -> None:
    ways = {**pooled_ways(), **phased_ways([4])}
    results = {result.name: result for result in counterfactual_bandit(ways, **SMALL)}
    assert results["own"].shares.shape == (3,)
    assert results["own"].median > results["last"].median
    assert results["4 phases"].median > results["last"].median


def test_what_is_learned_by_default_from_one_run_beats_random() -> None:
    """And so do plans, while the paper's λ does not; all 24 environments are in the docs."""
    ways = {**weighted_ways([0.2]), **phased_ways([2])}
    results = {r.name: r for r in counterfactual_bandit(ways, iterations=1, **SMALL)}
    assert results["default"].wins == 3
    assert results["2 phases"].wins == 3
    assert results["λ = 0.2"].wins == 0


@pytest.mark.parametrize("every", [1, 7, 100])
def test_the_rise_of_the_score_is_shared_by_the_steps_between_evaluations(every: int) -> None:
    environment = Environment.random(4, 100, stream(1, "environment"))
    rollout = simulate(Random(environment.tasks), environment, 100, stream(1, "draws"))
    rewards = score_rise(every)(rollout)
    assert rewards.sum() == pytest.approx(rollout.final)
    first = rollout.curve[every - 1]
    assert rewards[:every] == pytest.approx(np.full(every, first / every))


def test_the_paper_s_reward_teaches_more_than_the_rise_of_the_score() -> None:
    """That goes to what rises fastest, which is learned soonest anyway."""
    ways = weighted_ways([])
    [usual] = counterfactual_bandit(ways, iterations=1, **SMALL)
    [aligned] = counterfactual_bandit(ways, iterations=1, reward=score_rise(1), **SMALL)
    assert usual.median > 0 > aligned.median
