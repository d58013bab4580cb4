import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.uncertainty import bald


def random_samples(seed, passes=8, examples=5, classes=3, concentration=1.0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, concentration), (passes, examples))


def transcribed(samples):
    """H of the mean less the mean of H, by loops."""
    passes, examples, classes = samples.shape
    scores = []
    for i in range(examples):
        total, within = 0.0, 0.0
        for c in range(classes):
            mean = sum(samples[k, i, c] for k in range(passes)) / passes
            total -= mean * math.log(mean) if mean > 0 else 0.0
            for k in range(passes):
                p = samples[k, i, c]
                within -= p * math.log(p) / passes if p > 0 else 0.0
        scores.append(total - within)
    return scores


@pytest.mark.parametrize("concentration", [0.05, 1.0, 50.0])
def test_it_is_the_entropy_of_the_mean_less_the_mean_entropy(concentration):
    samples = random_samples(1, concentration=concentration)
    np.testing.assert_allclose(bald(samples), transcribed(samples), atol=1e-12)


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 33), st.sampled_from([0.01, 0.3, 3.0]))
def test_passes_that_agree_give_exactly_zero(seed, passes, concentration):
    one = random_samples(seed, passes=1, concentration=concentration)
    assert np.all(bald(np.repeat(one, passes, axis=0)) == 0.0)


@settings(derandomize=True, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(1, 9), st.integers(2, 6), st.sampled_from([0.01, 0.3, 3.0])
)
def test_nothing_is_negative_or_exceeds_the_logarithm_of_passes_or_classes(
    seed, passes, classes, concentration
):
    scores = bald(random_samples(seed, passes, 5, classes, concentration))
    assert np.all(scores >= 0)
    assert np.all(scores <= math.log(min(passes, classes)))


def test_passes_that_are_certain_of_different_classes_reach_the_ceiling():
    certain = np.eye(4)[:, None, :]
    assert bald(certain)[0] == pytest.approx(math.log(4), abs=1e-15)


def test_the_order_of_passes_and_of_classes_does_not_matter():
    samples = random_samples(2)
    np.testing.assert_allclose(bald(samples[::-1]), bald(samples), atol=1e-14)
    np.testing.assert_allclose(bald(samples[..., ::-1]), bald(samples), atol=1e-14)


def test_tensors_and_arrays_give_the_same_numbers():
    samples = random_samples(3)
    scores = bald(torch.from_numpy(samples))
    assert isinstance(scores, torch.Tensor)
    assert np.array_equal(scores.numpy(), bald(samples))


def test_samples_without_passes_are_refused_by_shape():
    with pytest.raises(ValueError, match=r"passes, examples, classes.*\(2, 2\)"):
        bald(np.full((2, 2), 0.5))
