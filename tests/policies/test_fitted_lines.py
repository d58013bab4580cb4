"""Fitted lines are least squares, and know how far their slopes can be off."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.policies.fitted_lines import _KEPT, _SLOPE_NOISE, FittedLines
from bursar.rng import stream

values = st.lists(st.floats(-5, 5), min_size=2, max_size=30)


def followed(points):
    lines = FittedLines(1)
    for number, value in enumerate(points, 1):
        assert lines.observe(0, number, value)
    return lines


@settings(derandomize=True, deadline=None, max_examples=50)
@given(values)
def test_the_line_over_everything_is_least_squares(points):
    slope = np.polyfit(np.arange(len(points)), points, 1)[0]
    assert followed(points).overall[0] == pytest.approx(slope, abs=1e-8)


def estimator(points, kept):
    """By what each value is multiplied in the slope and in the forecast, from the design matrix."""
    ages = np.arange(points)[::-1]
    columns = np.stack([np.ones(points), -ages], axis=1)
    if kept == 0:
        ages, columns = ages[-2:], columns[-2:]
        kept = 1.0
    roots = np.diag(kept ** (ages / 2))
    solved = np.linalg.pinv(roots @ columns) @ roots
    return solved[1], solved.sum(axis=0)


@pytest.mark.parametrize("points", [3, 4, 10, 80])
@pytest.mark.parametrize("rate", range(len(_KEPT)))
def test_the_variance_of_a_slope_is_that_of_its_weights(points, rate):
    slope, forecast = estimator(points, float(_KEPT[rate]))
    ratio = (slope**2).sum() / (1 + (forecast**2).sum())
    assert _SLOPE_NOISE[points - 1, rate] == pytest.approx(ratio, rel=1e-6)


def test_slopes_are_off_by_about_as_much_as_is_said():
    """The median of a squared normal number is 0.455; of 400 it is off by less than a fifth."""
    rng, ratios = stream(1, "slopes"), []
    for _ in range(400):
        lines = followed(0.01 * np.arange(60) + 0.1 * rng.normal(size=60))
        ratios.append((lines.slopes[0] - 0.01) ** 2 / lines.variances[0])
    # The line that happened to forecast best looks a little better than it is.
    assert 0.8 < np.median(np.abs(ratios)) / 0.455 < 2.5


def test_without_noise_the_rise_of_now_is_known_at_once():
    lines = followed([0.1 * min(n, 20) for n in range(40)])
    assert lines.slopes[0] == pytest.approx(0, abs=1e-12)
    assert lines.variances[0] < 1e-4
    assert lines.overall[0] > 0.03


def test_nothing_is_known_of_the_noise_before_a_forecast():
    assert followed([1.0, 2.0]).variances.tolist() == [np.inf]
    assert np.isfinite(followed([1.0, 2.0, 2.5]).variances).all()


def test_a_late_value_is_left_out():
    lines = followed([1.0, 2.0, 3.0])
    before = lines.state_dict()
    assert not lines.observe(0, 2, 100.0)
    assert lines.state_dict() == before
