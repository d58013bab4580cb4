import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.report.timeline import MAX_POINTS, held_means, smoothed, thinned


@given(st.integers(1, 10**6))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_thinning_keeps_the_ends_and_never_more_than_asked(count):
    kept = thinned(count)
    assert len(kept) == min(count, MAX_POINTS)
    assert kept[0] == 0
    assert kept[-1] == count - 1
    assert np.all(np.diff(kept) > 0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(1, 50))
@settings(derandomize=True, deadline=None)
def test_smoothing_is_the_mean_of_the_neighbours(values, window):
    half = window // 2
    expected = [
        sum(near) / len(near)
        for k in range(len(values))
        for near in [values[max(0, k - half) : k + half + 1]]
    ]
    np.testing.assert_allclose(smoothed(np.array(values), window), expected, atol=1e-9)


@given(st.data())
@settings(derandomize=True, deadline=None)
def test_means_of_what_holds_are_those_of_every_single_step(data):
    length = data.draw(st.integers(2, 60))
    changes = data.draw(st.sets(st.integers(1, length - 1)))
    starts = np.array(sorted({0} | changes), dtype=float)
    values = np.random.default_rng(length).random((len(starts), 3))
    bins = data.draw(st.sampled_from([k for k in range(1, length + 1) if length % k == 0]))
    every = np.array([values[np.flatnonzero(starts <= t)[-1]] for t in range(length)])
    expected = every.reshape(bins, length // bins, 3).mean(axis=1)
    found = held_means(starts, values, np.linspace(0, length, bins + 1))
    np.testing.assert_allclose(found, expected, atol=1e-12)
