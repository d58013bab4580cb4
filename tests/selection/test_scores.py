import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from taskmix.selection import example_scores
from taskmix.tasks.kinds import Choose, Span
from taskmix.uncertainty import bald, entropy


@pytest.fixture
def samples():
    return np.random.default_rng(1).dirichlet(np.ones(3), (8, 12))


def test_classes_are_scored_by_entropy_over_the_most_it_can_be(samples):
    expected = entropy(samples.mean(axis=0)) / math.log(3)
    np.testing.assert_allclose(example_scores(samples), expected, atol=1e-14)
    np.testing.assert_allclose(
        example_scores(samples, "bald"), bald(samples) / math.log(3), atol=1e-14
    )


def test_knowing_nothing_scores_one_and_certainty_nothing_for_classes_and_numbers_alike():
    for classes in (2, 3, 10):
        assert example_scores(np.full((1, 1, classes), 1 / classes))[0] == pytest.approx(1)
        assert example_scores(np.eye(classes)[None])[0] == 0
    assert example_scores(np.zeros((4, 1, 1)), residual=1.0)[0] == pytest.approx(1)
    assert example_scores(np.zeros((4, 1, 1)), residual=0.0)[0] == 0


def test_a_regression_is_ranked_by_the_variance_of_its_passes():
    means = np.random.default_rng(2).normal(0, np.linspace(0.1, 0.5, 6), (400, 6))
    for score in ("entropy", "bald"):
        scores = example_scores(means[..., None], score, residual=0.1)
        assert np.all(np.diff(scores) > 0)
        assert np.all(scores <= 1)


def test_a_regression_that_is_far_off_scores_higher():
    means = np.zeros((4, 1, 1))
    scores = [example_scores(means, residual=r)[0] for r in (0.0, 0.2, 0.7, 1.0, 3.0)]
    assert scores == sorted(scores)
    assert scores[-1] == pytest.approx(1)


@pytest.mark.parametrize("score", ["entropy", "bald"])
@pytest.mark.parametrize("residual", [0.1, 1.0, 5.0])
def test_candidates_of_a_regression_are_ranked_however_little_is_learned(score, residual):
    means = np.random.default_rng(3).normal(0, 0.4, (8, 32, 1))
    scores = example_scores(means, score, residual)
    assert len(set(scores)) == 32
    assert np.all((scores >= 0) & (scores < 1))


def test_a_regression_is_scored_by_its_probabilities_of_five_equally_likely_intervals():
    means, residual = np.random.default_rng(4).normal(0, 1, (3, 6, 1)), 0.3
    expected = []
    for example in range(6):
        p = [0.0] * 5
        for number in range(3):
            gaussian = NormalDist(means[number, example, 0], math.sqrt(residual))
            edges = [-9.0, *(NormalDist().inv_cdf(k / 5) for k in range(1, 5)), 9.0]
            for k in range(5):
                p[k] += (gaussian.cdf(edges[k + 1]) - gaussian.cdf(edges[k])) / 3
        expected.append(-sum(q * math.log(q) for q in p) / math.log(5))
    np.testing.assert_allclose(example_scores(means, residual=residual), expected, atol=1e-9)


def test_tensors_are_scored_alike(samples):
    assert np.array_equal(example_scores(torch.from_numpy(samples)), example_scores(samples))


@pytest.mark.parametrize("score", ["entropy", "bald"])
def test_padding_does_not_change_a_score(samples, score):
    expected = example_scores(samples, score)
    for width in (4, 10, 384):
        padded = np.zeros((*samples.shape[:2], width))
        padded[..., :3] = samples
        np.testing.assert_allclose(example_scores(padded, score), expected, atol=1e-14)


def test_a_span_scores_the_same_beside_longer_ones():
    """A window of 4 candidates that knows nothing, in batches of ever longer windows."""
    span = Span()
    for longest in (6, 20, 90):
        batch = {
            "context": torch.tensor([[3, 6], [3, longest]]),
            "starts": torch.tensor([0, 0]),
        }
        samples = span.distribution(torch.zeros(2, longest, 2), batch).double().numpy()[None]
        assert example_scores(samples) == pytest.approx(np.ones(4), abs=1e-7)
        logits = torch.zeros(2, longest, 2)
        logits[0, 3] = 2.0
        samples = span.distribution(logits, batch).double().numpy()[None]
        p = math.exp(2) / (math.exp(2) + 3)
        q = (1 - p) / 3
        expected = -(p * math.log(p) + 3 * q * math.log(q)) / math.log(4)
        assert example_scores(samples)[:2] == pytest.approx([expected] * 2, abs=1e-6)


def test_a_choice_scores_the_same_beside_rows_of_more_choices():
    def first(rows):
        item = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(rows))
        batch = {"item": item, "labels": torch.zeros(len(rows), dtype=torch.long)}
        logits = torch.zeros(len(item), 1)
        logits[0] = 1.0
        samples = Choose().distribution(logits, batch).double().numpy()[None]
        return example_scores(samples)[0]

    assert first([2, 2]) == pytest.approx(first([2, 9]), abs=1e-6)
    assert first([2, 2]) < 1
