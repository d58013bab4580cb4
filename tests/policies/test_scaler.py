"""Rewards are scaled by the quantiles of a fair sample of all rewards so far."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.policies import QuantileScaler

quick = settings(derandomize=True, deadline=None, max_examples=50)
rewards = st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=60)


@quick
@given(rewards)
def test_while_all_fit_it_is_equation_6_on_all_rewards_so_far(values):
    scaler = QuantileScaler()
    for i, value in enumerate(values, 1):
        low, high = np.quantile(values[:i], [0.2, 0.8])
        found = scaler(value)
        if high > low:
            expected = np.clip(2 * (value - low) / (high - low) - 1, -1, 1)
            assert found == pytest.approx(expected, abs=1e-9)
        else:
            assert found == 0


@quick
@given(rewards, st.sampled_from([0.25, 8.0]), st.integers(-100, 100))
def test_scale_and_offset_of_the_rewards_do_not_matter(values, factor, offset):
    one, other = QuantileScaler(), QuantileScaler()
    for value in values:
        assert one(value) == pytest.approx(other(factor * value + offset), abs=1e-9)


def test_the_reservoir_keeps_every_reward_with_the_same_probability():
    kept = np.zeros(40)
    for start in range(400):
        scaler = QuantileScaler(size=10)
        # Each run starts its random stream elsewhere, by rewards that are then forgotten.
        state = scaler.state_dict()
        state["rng"]["counter"][1] = start
        scaler.load_state_dict(state)
        for value in range(40):
            scaler(float(value))
        kept[[int(v) for v in scaler.state_dict()["reservoir"]]] += 1
    # 400 runs x 10 places / 40 rewards; the bound is exceeded by one reward in 10^7.
    sd = (400 * 0.25 * 0.75) ** 0.5
    assert np.all(np.abs(kept - 100) < 5.4 * sd)


def test_a_restored_scaler_goes_on_identically():
    rng = np.random.default_rng(1)
    scaler, other = QuantileScaler(size=5), QuantileScaler(size=5)
    for _ in range(50):
        scaler(rng.normal())
    other.load_state_dict(json.loads(json.dumps(scaler.state_dict())))
    values = rng.normal(size=50)
    assert [scaler(v) for v in values] == [other(v) for v in values]


def test_equal_rewards_are_zero_whatever_they_are():
    scaler = QuantileScaler()
    assert {scaler(0.1) for _ in range(50)} == {0.0}


def test_huge_rewards_stay_in_range():
    scaler = QuantileScaler()
    for value in [1.7e308, -1.7e308, 0.0, 1e308]:
        assert -1 <= scaler(value) <= 1


def test_a_mistake_is_named():
    with pytest.raises(ValueError, match=r"found 0, 0\.2, 0\.8"):
        QuantileScaler(size=0)
