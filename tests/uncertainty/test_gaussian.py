import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.uncertainty import gaussian_bald, gaussian_batch_bald, gaussian_entropy


def random_means(seed, passes=50, examples=4, scale=0.3):
    return np.random.default_rng(seed).normal(0, scale, (passes, examples))


def test_of_one_example_it_is_half_the_logarithm_of_one_plus_the_variance():
    means = random_means(1)
    expected = [0.5 * math.log(1 + np.var(means[:, i])) for i in range(4)]
    np.testing.assert_allclose(gaussian_bald(means), expected, atol=1e-12)


def test_jointly_it_is_half_the_log_determinant():
    means = random_means(2)
    covariance = np.cov(means.T, bias=True)
    expected = 0.5 * np.linalg.slogdet(np.eye(4) + covariance)[1]
    assert gaussian_batch_bald(means) == pytest.approx(expected, abs=1e-12)


def test_it_is_the_information_in_gaussian_passes():
    # I(y; f) for f ~ N(0, v), y = f + noise, by quadrature of the entropies of the two densities.
    v = 0.7
    y = np.linspace(-12, 12, 20_001)
    density = np.exp(-(y**2) / (2 * (1 + v))) / math.sqrt(2 * math.pi * (1 + v))
    entropy = -np.trapezoid(density * np.log(density), y)
    noise = 0.5 * math.log(2 * math.pi * math.e)
    means = math.sqrt(v) * np.array([[1.0], [-1.0]])
    assert gaussian_bald(means)[0] == pytest.approx(entropy - noise, abs=1e-9)


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 33))
def test_passes_that_agree_give_exactly_zero(seed, passes):
    means = np.repeat(random_means(seed, passes=1, scale=3.0), passes, axis=0)
    assert np.all(gaussian_bald(means) == 0)
    assert gaussian_batch_bald(means) == 0


def test_nothing_exceeds_the_logarithm_of_the_passes():
    means = random_means(3, passes=4, scale=1e6)
    assert np.all(gaussian_bald(means) <= math.log(4))
    assert gaussian_batch_bald(means) == math.log(4)


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 1))
def test_jointly_it_lies_between_the_best_single_example_and_the_sum(seed, scale):
    means = random_means(seed, scale=scale)
    single, joint = gaussian_bald(means), gaussian_batch_bald(means)
    assert single.max() - 1e-12 <= joint <= single.sum() + 1e-12
    assert joint >= gaussian_batch_bald(means[:, :3]) - 1e-12
    assert gaussian_batch_bald(means[:, :1]) == pytest.approx(single[0], abs=1e-12)


def test_the_entropy_is_nothing_for_the_certain_and_half_log_two_for_the_ignorant():
    agreed = np.full((3, 1), 0.4)
    assert gaussian_entropy(agreed, residual=0.0)[0] == 0
    assert gaussian_entropy(agreed, residual=1.0)[0] == pytest.approx(0.5 * math.log(2))


def test_the_entropy_counts_disagreement_as_the_information_does_when_nothing_else_is_unknown():
    means = random_means(4)
    np.testing.assert_allclose(gaussian_entropy(means, residual=0.0), gaussian_bald(means))
    assert np.all(np.argsort(gaussian_entropy(means)) == np.argsort(means.var(axis=0)))


def test_tensors_and_arrays_give_the_same_numbers():
    means = random_means(5)
    assert np.array_equal(gaussian_bald(torch.from_numpy(means)).numpy(), gaussian_bald(means))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"means \(passes, examples\), found shape \(3,\)"):
        gaussian_bald(np.zeros(3))
    with pytest.raises(ValueError, match="residual: expected a variance, found -1"):
        gaussian_entropy(np.zeros((2, 2)), residual=-1)
