import itertools
import math

import numpy as np
import pytest

from taskmix.rng import stream
from taskmix.uncertainty import bald, batch_bald, legacy


def random_samples(seed, passes=4, examples=6, classes=2):
    return np.random.default_rng(seed).dirichlet(np.ones(classes), (passes, examples))


def joint_entropy(samples, examples):
    passes, _, classes = samples.shape
    total = 0.0
    for labels in itertools.product(range(classes), repeat=len(examples)):
        terms = (
            math.prod(samples[k, i, y] for i, y in zip(examples, labels, strict=True))
            for k in range(passes)
        )
        p = sum(terms) / passes
        total -= p * math.log(p)
    return total


def transcribed(samples, steps):
    """Greedy by the joint entropy less the candidate's own conditional entropy."""
    passes, examples, _ = samples.shape
    single = bald(samples)
    taken = [int(np.argmax(single))]
    scores = [single[taken[0]]]
    while len(taken) < steps:
        best, best_score = -1, -math.inf
        for i in set(range(examples)) - set(taken):
            p = samples[:, i]
            score = joint_entropy(samples, [*taken, i]) + (p * np.log(p)).sum() / passes
            if score > best_score:
                best, best_score = i, score
        taken.append(best)
        scores.append(best_score)
    return sum(scores) / len(scores)


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_the_greedy_score_of_the_authors(classes):
    samples = random_samples(1, classes=classes)
    assert legacy(samples, steps=5) == pytest.approx(transcribed(samples, 5), abs=1e-12)


def test_where_configurations_are_drawn_it_is_close_to_counting_them():
    # The spread of the estimate at these settings is 0.01; eight of them are allowed.
    samples = random_samples(2, passes=8, examples=10, classes=3)
    counted = legacy(samples, steps=6, draws=10_000)
    drawn = legacy(samples, steps=6, draws=60, rng=stream(1, "test"))
    assert drawn == pytest.approx(counted, abs=0.08)


def test_it_is_large_for_passes_that_agree_where_information_is_zero():
    agreed = np.repeat(random_samples(3, passes=1, examples=40), 8, axis=0)
    assert batch_bald(agreed) == 0
    assert legacy(agreed) > 1


def test_few_examples_are_all_taken():
    samples = random_samples(4, examples=3)
    assert legacy(samples, steps=10) == pytest.approx(transcribed(samples, 3), abs=1e-12)
