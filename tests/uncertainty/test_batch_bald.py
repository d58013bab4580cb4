import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.rng import stream
from taskmix.uncertainty import bald, batch_bald, joint_mutual_information


def random_samples(seed, passes=8, examples=4, classes=3, concentration=1.0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, concentration), (passes, examples))


def enumerated(samples):
    """Joint entropy over every configuration less the conditional entropies, by loops."""
    passes, examples, classes = samples.shape
    joint = 0.0
    for labels in itertools.product(range(classes), repeat=examples):
        p = 0.0
        for k in range(passes):
            p += math.prod(samples[k, i, y] for i, y in enumerate(labels)) / passes
        joint -= p * math.log(p) if p > 0 else 0.0
    conditional = -sum(p * math.log(p) for p in samples.ravel() if p > 0) / passes
    return joint - conditional


@pytest.mark.parametrize(("examples", "classes"), [(1, 2), (7, 2), (4, 3), (3, 5)])
@pytest.mark.parametrize("concentration", [0.05, 1.0, 30.0])
def test_it_equals_enumeration(examples, classes, concentration):
    samples = random_samples(1, 6, examples, classes, concentration)
    found = joint_mutual_information(samples)
    assert found.exact
    assert found.standard_error == 0
    assert found.value == pytest.approx(enumerated(samples), abs=1e-12)


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_of_one_example_it_is_bald(seed, classes):
    samples = random_samples(seed, examples=1, classes=classes)
    assert batch_bald(samples) == bald(samples)[0]


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 33), st.sampled_from([1, 6, 200]))
def test_passes_that_agree_give_exactly_zero(seed, passes, examples):
    one = random_samples(seed, passes=1, examples=examples)
    assert batch_bald(np.repeat(one, passes, axis=0)) == 0.0


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 9), st.sampled_from([0.02, 0.5, 5.0]))
def test_it_lies_between_the_best_single_example_and_the_sum_and_below_log_passes(
    seed, passes, concentration
):
    samples = random_samples(seed, passes, concentration=concentration)
    joint, single = batch_bald(samples), bald(samples)
    assert single.max() - 1e-12 <= joint <= single.sum() + 1e-12
    assert joint <= math.log(passes)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(0, 10_000))
def test_it_is_submodular_an_example_adds_less_to_a_larger_set(seed):
    samples = random_samples(seed, examples=5)

    def of(*examples):
        return batch_bald(samples[:, list(examples)])

    assert of(0, 1, 4) - of(0, 1) <= of(0, 4) - of(0) + 1e-12
    assert of(0, 1, 2, 3, 4) - of(0, 1, 2, 3) <= of(0, 1, 4) - of(0, 1) + 1e-12


def test_an_example_that_tells_nothing_changes_nothing():
    samples = random_samples(4)
    silent = np.broadcast_to(samples[:1, :1], (8, 90, 3))
    assert batch_bald(np.concatenate([samples, silent], axis=1)) == batch_bald(samples)


@pytest.mark.parametrize("concentration", [0.3, 1.0, 5.0, 100.0])
def test_draws_come_within_two_standard_errors_of_enumeration(concentration):
    # 40 estimates: with exact errors 4.6% of each would be outside two of them, and 7 or more
    # outside with probability 0.2%. Fixed seeds.
    outside = 0
    for seed in range(40):
        samples = random_samples(seed, 8, 5, 2, concentration)
        drawn = joint_mutual_information(samples, limit=1, rng=stream(seed, "test"))
        assert not drawn.exact
        assert drawn.standard_error > 0
        outside += abs(drawn.value - enumerated(samples)) > 2 * drawn.standard_error
    assert outside < 7


def test_many_examples_in_pairs_that_repeat_are_known_from_the_few():
    # Sixty-four examples of which each pass is certain tell passes apart as one of them does.
    certain = np.eye(2)[np.arange(8) % 2]
    samples = np.repeat(certain[:, None], 64, axis=1)
    drawn = joint_mutual_information(samples)
    assert not drawn.exact
    assert drawn.value == pytest.approx(math.log(2), abs=1e-9)


def test_more_draws_have_a_smaller_error():
    samples = random_samples(5, examples=64, concentration=20.0)
    few = joint_mutual_information(samples, draws=50)
    many = joint_mutual_information(samples, draws=5000)
    assert many.standard_error < few.standard_error / 5
    assert many.value <= math.log(8)


def test_the_same_call_gives_the_same_draws():
    samples = random_samples(6, examples=64)
    assert batch_bald(samples) == batch_bald(samples)
    assert batch_bald(samples) != batch_bald(samples, rng=stream(1, "other"))


def test_a_tensor_gives_the_same_number():
    samples = random_samples(7)
    assert batch_bald(torch.from_numpy(samples)) == batch_bald(samples)


def test_a_single_draw_has_no_error_and_is_refused():
    with pytest.raises(ValueError, match="draws: expected at least 2, found 1"):
        batch_bald(random_samples(1), limit=1, draws=1)
