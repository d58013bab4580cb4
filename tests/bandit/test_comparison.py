"""The comparison measures every policy by RANDOM and ORACLE, the same on any number of workers."""

import numpy as np
import pytest

from taskmix.bandit import CONTENDERS, BanditComparison, Environment, compare, simulate
from taskmix.rng import stream

SMALL = {"arms": 4, "steps": 60, "environments": 2, "seeds": 3}


def test_standings_are_medians_over_seeds_and_shares_of_the_gap():
    finals = np.array(
        [
            [[0.1, 0.2, 0.9], [0.2, 0.2, 0.2]],
            [[0.4, 0.4, 0.4], [0.6, 0.6, 0.6]],
            [[0.3, 0.5, 0.5], [0.4, 0.4, 0.0]],
        ]
    )
    comparison = BanditComparison(("random", "oracle", "ours"), finals[..., None])
    lines = {line.policy: line for line in comparison.standings()}
    assert lines["random"].score == pytest.approx(0.2)
    assert lines["ours"].score == pytest.approx(0.45)
    assert lines["ours"].closed == pytest.approx(np.median([0.3 / 0.2, 0.2 / 0.4]))
    assert (lines["ours"].over_random, lines["ours"].over_oracle) == (2, 1)
    assert [line.policy for line in comparison.standings()] == ["oracle", "ours", "random"]


@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_every_contender_plays(name):
    environment = Environment.random(3, 40, stream(1, "environment"))
    rollout = simulate(CONTENDERS[name](environment), environment, 40, stream(1, "draws"))
    assert 0 < rollout.final < 1
    assert rollout.probabilities.sum(axis=1) == pytest.approx(np.ones(40))


def test_everything_follows_from_the_seed_whatever_the_number_of_workers():
    policies = {"progress": CONTENDERS["progress"]}
    one = compare(policies, **SMALL, seed=3)
    two = compare(policies, **SMALL, seed=3, workers=2)
    other = compare(policies, **SMALL, seed=4)
    assert one.policies == ("progress", "random", "oracle")
    assert np.array_equal(one.curves, two.curves)
    assert not np.array_equal(one.curves, other.curves)


def test_exp3s_stays_at_random_with_the_log_likelihood_gain():
    # Two environments and four seeds of the eight and ten that the command runs.
    names = ("random", "exp3s")
    found = compare({n: CONTENDERS[n] for n in names}, environments=2, seeds=4)
    scores = {line.policy: line.score for line in found.standings()}
    assert abs(scores["exp3s"] - scores["random"]) <= 0.02
    assert scores["oracle"] > scores["random"] + 0.02
