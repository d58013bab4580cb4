"""Fitted lines are least squares that forget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.policies.lines import _DECAYS, FittedLines

values = st.lists(st.floats(-5, 5), min_size=2, max_size=30)


def followed(points):
    lines = FittedLines(1)
    for number, value in enumerate(points, 1):
        assert lines.observe(0, number, value)
    return lines


def slope_of(points, kept):
    """The slope of the line whose squared errors count kept^age."""
    if kept == 0:
        points, kept = points[-2:], 1.0
    ages = np.arange(len(points))[::-1]
    return np.polyfit(-ages, points, 1, w=kept ** (ages / 2))[0]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(values)
def test_every_line_is_least_squares(points):
    slopes = followed(points).state_dict()["rises"][0]
    for slope, kept in zip(slopes, _DECAYS.tolist(), strict=True):
        assert slope == pytest.approx(slope_of(points, kept), abs=1e-6)


def test_without_noise_the_rise_of_now_is_known_at_once():
    lines = followed([0.1 * min(n, 20) for n in range(40)])
    assert lines.slopes[0] == pytest.approx(0, abs=1e-12)


def test_a_late_value_is_left_out():
    lines = followed([1.0, 2.0, 3.0])
    before = lines.state_dict()
    assert not lines.observe(0, 2, 100.0)
    assert lines.state_dict() == before
