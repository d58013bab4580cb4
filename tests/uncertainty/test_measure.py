import math
import tracemalloc

import numpy as np
import pytest

from taskmix.uncertainty import (
    bald,
    batch_bald,
    entropy,
    gaussian_bald,
    gaussian_batch_bald,
    gaussian_entropy,
    legacy,
    measure,
    measure_batches,
)


@pytest.fixture
def samples():
    return np.random.default_rng(1).dirichlet(np.ones(3), (8, 12))


@pytest.fixture
def means():
    return np.random.default_rng(2).normal(0, 0.5, (8, 12))


def test_bald_and_entropy_are_means_over_examples(samples):
    assert measure(samples) == pytest.approx(bald(samples).mean(), abs=1e-15)
    assert measure(samples, "entropy") == pytest.approx(entropy(samples.mean(0)).mean(), abs=1e-15)


def test_batch_bald_is_the_joint_information_of_groups_an_example(samples):
    groups = (samples[:, :5], samples[:, 5:10], samples[:, 10:])
    expected = sum(batch_bald(group) for group in groups) / 12
    assert measure(samples, "batch_bald") == pytest.approx(expected, abs=1e-15)
    assert measure(samples, "batch_bald") < measure(samples, "bald")


def test_legacy_is_the_mean_over_mini_batches(samples):
    assert measure(samples, "legacy") == legacy(samples)


def test_one_class_is_a_regression(means):
    samples = means[..., None]
    assert measure(samples) == pytest.approx(gaussian_bald(means).mean())
    expected = gaussian_entropy(means, 0.2).mean()
    assert measure(samples, "entropy", residual=0.2) == pytest.approx(expected)
    groups = (means[:, :5], means[:, 5:10], means[:, 10:])
    expected = sum(gaussian_batch_bald(group) for group in groups) / 12
    assert measure(samples, "batch_bald") == pytest.approx(expected)


def test_passes_that_agree_are_certain_whatever_the_task(samples, means):
    assert measure(np.repeat(samples[:1], 8, axis=0)) == 0
    assert measure(np.repeat(means[:1], 8, axis=0)[..., None]) == 0
    assert measure(samples) <= math.log(3)


def test_mistakes_are_named(samples, means):
    with pytest.raises(ValueError, match=r"score: expected one of bald, .*, found 'bold'"):
        measure(samples, "bold")
    with pytest.raises(ValueError, match="'legacy' is not defined for a regression"):
        measure(means[..., None], "legacy")


@pytest.mark.parametrize("score", ["bald", "batch_bald", "entropy", "legacy"])
@pytest.mark.parametrize("cuts", [[], [3], [1, 2, 130, 131], [7, 140, 290]])
def test_batches_measure_what_all_of_them_do(score: str, cuts: list[int]) -> None:
    """Whatever the sizes of the batches, groups of 5 and of 128 are the same ones."""
    samples = np.random.default_rng(1).dirichlet([1.0, 0.5, 0.5], size=(3, 300))
    parts = np.split(samples, cuts, axis=1)
    expected = measure(samples, score)  # type: ignore[arg-type]
    assert measure_batches(parts, score) == pytest.approx(expected, rel=1e-12)  # type: ignore[arg-type]


def test_batches_of_different_widths_are_measured_too() -> None:
    wide = np.random.default_rng(1).dirichlet([1.0] * 4, size=(3, 7))
    narrow = np.random.default_rng(2).dirichlet([1.0] * 2, size=(3, 6))
    padded = np.concatenate([wide, np.pad(narrow, ((0, 0), (0, 0), (0, 2)))], axis=1)
    for score in ("bald", "batch_bald", "entropy"):
        assert measure_batches([wide, narrow], score) == pytest.approx(measure(padded, score))  # type: ignore[arg-type]
    assert measure_batches([]) == 0.0


def test_batches_are_not_kept() -> None:
    """Samples of 200 batches take 63 MB; two at a time are 0.6."""
    samples = np.full((4, 32, 308), 1 / 308)
    tracemalloc.start()
    measure_batches(samples.copy() for _ in range(200))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * samples.nbytes
