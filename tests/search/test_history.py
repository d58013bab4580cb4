import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmix.search.history import Nomination, known_rewards, probabilities, total

gains = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3)


@given(gains, st.floats(0, 10))
def test_probabilities_sum_to_1_and_follow_the_order_of_the_gains(
    g: list[float], eta: float
) -> None:
    found = probabilities(np.array(g), eta)
    assert found.sum() == pytest.approx(1)
    assert (np.diff(found[np.argsort(g)]) >= 0).all()


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3), st.floats(-100, 100))
def test_probabilities_are_the_softmax_and_ignore_a_common_shift(
    g: list[float], shift: float
) -> None:
    expected = [math.exp(0.7 * x) / sum(math.exp(0.7 * y) for y in g) for x in g]
    np.testing.assert_allclose(probabilities(np.array(g), 0.7), expected)
    np.testing.assert_allclose(probabilities(np.array(g) + shift, 0.7), expected, rtol=1e-9)


def test_without_gains_or_without_eta_all_are_equally_likely() -> None:
    np.testing.assert_allclose(probabilities(np.zeros(3), 1.0), 1 / 3)
    np.testing.assert_allclose(probabilities(np.array([5.0, 0.0, -5.0]), 0.0), 1 / 3)


def test_a_trial_is_rewarded_once_and_the_earlier_word_stands() -> None:
    first = Nomination({}, "ei", {3: {"ei": 1.0}, 4: {"ei": 2.0}})
    second = Nomination({}, "ei", {4: {"ei": 9.0}, 5: {"ei": 4.0}})
    known = known_rewards([first, second])
    assert known == {3: {"ei": 1.0}, 4: {"ei": 2.0}, 5: {"ei": 4.0}}
    assert total(known.values(), ["ei"]) == {"ei": 7.0}


def test_a_round_survives_json() -> None:
    nominees = {"pi": {"x": 1, "y": None}, "ei": {"x": 0.1, "y": "a"}}
    original = Nomination(nominees, "pi", {7: {"pi": 0.25, "ei": -1.0}}, {"pi": 0.25, "ei": -1.0})
    assert Nomination.from_json(json.loads(json.dumps(original.to_json()))) == original
