"""Paired differences: the interval, the corrected test, and how often it raises a false alarm."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, ttest_rel

from taskmix.config import Objective
from taskmix.rng import stream
from taskmix.studies.comparison import Comparison
from taskmix.studies.paired import (
    Difference,
    differences,
    holm,
    how_tested,
    interval_words,
    p_words,
)
from taskmix.training.folder import Finished, Scores

STUDIES = 1000
MANY = 2000
TASKS = 4
Scorer = Callable[[np.random.Generator, int, int], NDArray[np.float64]]


def study(scores: NDArray[np.float64]) -> Comparison:
    """A comparison of these scores, shape (contestants, seeds, tasks), as `compare` gives it."""
    runs = {
        f"contestant {k}": [
            Finished(
                1,
                float(np.mean(run)),
                {f"task {j}": Scores(float(s), {}, 0.5, 100) for j, s in enumerate(run)},
                1,
                1,
            )
            for run in seeds
        ]
        for k, seeds in enumerate(scores)
    }
    return Comparison(runs, {})


def normal(rng: np.random.Generator, contestants: int, seeds: int) -> NDArray[np.float64]:
    """Nobody is better; what a seed and a task are worth is common to all contestants."""
    common = 0.03 * rng.normal(size=(1, seeds, 1)) + 0.1 * rng.normal(size=(1, 1, TASKS))
    return 0.6 + common + 0.01 * rng.normal(size=(contestants, seeds, TASKS))


def unequal(rng: np.random.Generator, contestants: int, seeds: int) -> NDArray[np.float64]:
    """Nobody is better, but each contestant is three times as noisy as the one before."""
    spread = 0.001 * 3.0 ** np.arange(contestants)
    return 0.6 + spread[:, None, None] * rng.normal(size=(contestants, seeds, TASKS))


def accuracies(rng: np.random.Generator, contestants: int, seeds: int) -> NDArray[np.float64]:
    """Nobody is better, and scores are shares of right answers among 277 (the dev set of RTE)."""
    return rng.binomial(277, 0.6, size=(contestants, seeds, TASKS)) / 277


def skewed(rng: np.random.Generator, contestants: int, seeds: int) -> NDArray[np.float64]:
    """Nobody is better, and now and then a run learns much less."""
    bad = rng.random(size=(contestants, seeds, TASKS)) < 0.1
    return 0.6 - 0.1 * bad + 0.01 * rng.normal(size=(contestants, seeds, TASKS))


def false_alarms(scores: Scorer, contestants: int, seeds: int, studies: int = STUDIES) -> float:
    """The share of studies in which a contestant is told from the baseline."""
    rng = stream(1, "false alarms", scores.__name__, contestants, seeds)
    found = [study(scores(rng, contestants, seeds)).differences() for _ in range(studies)]
    return sum(any(each.significant for each in by.values()) for by in found) / studies


def test_the_limits_below_have_the_false_alarm_rates_that_are_stated() -> None:
    """How often the tests below would fail with other random numbers, if the rate is 5%."""
    two = binom.cdf(0.035 * STUDIES - 1, STUDIES, 0.05) + binom.sf(0.065 * STUDIES, STUDIES, 0.05)
    assert two == pytest.approx(0.024, abs=0.001)
    assert binom.sf(0.065 * MANY, MANY, 0.05) == pytest.approx(0.0013, abs=0.0001)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_same_policy_under_two_names_is_told_apart_in_5_percent_of_studies(seeds: int) -> None:
    """Within 1.5 percent. A rate of 5% exactly fails this with probability 2.4% for each case."""
    assert 0.035 <= false_alarms(normal, contestants=2, seeds=seeds) <= 0.065


@pytest.mark.parametrize(("contestants", "seeds"), [(4, 3), (6, 5)])
@pytest.mark.parametrize("scores", [normal, unequal])
def test_several_names_are_told_apart_in_at_most_5_percent_of_studies(
    scores: Scorer, contestants: int, seeds: int
) -> None:
    """And 1.5 percent. A rate of 5% exactly fails this with probability 0.13% a case."""
    assert false_alarms(scores, contestants, seeds, MANY) <= 0.065


@pytest.mark.parametrize("scores", [accuracies, skewed])
def test_scores_that_are_not_normal_raise_no_more_false_alarms(scores: Scorer) -> None:
    """As above: with probability 0.13% a case."""
    assert false_alarms(scores, 4, 3, MANY) <= 0.065


def test_a_comparison_shows_a_constant_prediction_and_names_the_tasks_below_it() -> None:
    def run(score: float) -> Finished:
        tasks = {"a": Scores(score, {}, 0.5, 90, 0.6), "b": Scores(score, {}, 0.5, 90)}
        return Finished(1, score, tasks, 1, 1)

    comparison = Comparison({"x": [run(0.5)], "y": [run(0.6)]}, {})
    assert comparison.scores_table().columns[-1].heading == "constant prediction"
    assert [row[-1] for row in comparison.scores_table().rows[:3]] == [0.6, None, ""]
    assert comparison.verdict().sentence.endswith(
        "Not above the baseline of a constant prediction: a."
    )
    learned = Comparison({"x": [run(0.5)], "y": [run(0.7)]}, {})
    assert "constant" not in learned.verdict().sentence


def test_a_verdict_names_the_tasks_with_few_dev_rows_that_it_rests_on() -> None:
    tasks = {"a": Scores(0.5, {}, 0.5, 29), "b": Scores(0.5, {}, 0.5, 12)}
    runs = {"x": [Finished(1, 0.5, tasks, 1, 1)], "y": [Finished(1, 0.6, tasks, 1, 1)]}
    assert "Few dev rows: a has 29, b has 12;" in Comparison(runs, {}).verdict().sentence
    judged = Comparison(runs, {}, objective=Objective(tasks=("a",), measure="score"))
    assert "Few dev rows: a has 29;" in judged.verdict().sentence
    unknown = {name: replace(scores, examples=0) for name, scores in tasks.items()}
    hosted = {"x": [Finished(1, 0.5, unknown, 1, 1)], "y": [Finished(1, 0.6, unknown, 1, 1)]}
    assert "Few" not in Comparison(hosted, {}).verdict().sentence


def test_a_difference_is_that_of_the_paired_t_test() -> None:
    rng = stream(2, "scores")
    scores = rng.normal(size=(2, 6))
    [found] = differences(by_seed(scores), "0").values()
    theirs = ttest_rel(scores[1], scores[0])
    interval = theirs.confidence_interval(0.95)
    assert found.mean == pytest.approx(np.mean(scores[1] - scores[0]))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p == pytest.approx(theirs.pvalue)


def by_seed(scores: NDArray[np.float64]) -> dict[str, dict[int, float]]:
    return {str(k): dict(enumerate(own)) for k, own in enumerate(scores.tolist())}


def test_what_a_seed_is_worth_does_not_count() -> None:
    """Seeds differ by 0.3, contestants by 0.01: only pairs can tell that."""
    seeds = np.array([0.3, 0.6, 0.45, 0.5])
    scores = np.stack([seeds, seeds + np.array([0.010, 0.011, 0.009, 0.010])])
    assert differences(by_seed(scores), "0")["1"].significant


def test_p_values_are_corrected_as_holm_says() -> None:
    """His procedure: step by step through the smallest, until one is above alpha / those left."""
    rng = stream(3, "p-values")
    for _ in range(200):
        ps = (rng.random(5) ** 3).tolist()
        for alpha in (0.01, 0.05, 0.2):
            rejected: set[int] = set()
            for k in sorted(range(5), key=ps.__getitem__):
                if ps[k] > alpha / (5 - len(rejected)):
                    break
                rejected.add(k)
            assert {k for k, p in enumerate(holm(ps)) if p is not None and p <= alpha} == rejected


def test_a_missing_p_value_counts_and_stays_missing() -> None:
    assert holm([None, 0.01]) == [None, 0.02]
    assert holm([]) == []


def test_the_test_finds_what_is_there() -> None:
    """Five seeds, noise 0.014 of a difference, 0.03 between two: power 0.94 by the noncentral t."""
    rng = stream(4, "power")
    found = 0
    for _ in range(200):
        scores = 0.01 * rng.normal(size=(2, 5)) + [[0.0], [0.03]]
        found += differences(by_seed(scores), "0")["1"].significant
    assert found >= 160  # with a power of 0.94 that fails less than once in 10^9 times


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_seeds_have_no_interval_and_no_test_and_a_sentence_says_so(seeds: int) -> None:
    scores = {"a": dict.fromkeys(range(seeds), 0.5), "b": {k: 0.6 + k / 9 for k in range(seeds)}}
    found = differences(scores, "a")
    assert found == {"b": Difference(pytest.approx(0.1 + (seeds - 1) / 18), seeds)}
    assert not found["b"].significant
    assert "(" not in interval_words(found["b"])
    assert "no interval and no test" in how_tested(found)


def test_the_same_runs_under_two_names_do_not_differ() -> None:
    [found] = differences({key: {1: 0.5, 2: 0.3, 3: 0.4} for key in "ab"}, "a").values()
    assert (found.low, found.high, found.p) == (0.0, 0.0, 1.0)


def test_a_difference_that_is_the_same_with_each_seed_shows_no_noise_to_test_it_by() -> None:
    """Two of 200 answers more, three times: rounding must not make that certain."""
    found = differences({"a": {1: 0.1, 2: 0.2, 3: 0.7}, "b": {1: 0.11, 2: 0.21, 3: 0.71}}, "a")
    assert found["b"].p is None
    assert found["b"].low is None
    assert p_words(found["b"]) == "\N{EN DASH}"


def test_only_seeds_that_both_have_are_paired() -> None:
    scores = {"a": {1: 0.5, 2: 0.4}, "b": {2: 0.5, 3: 0.9}, "c": {4: 0.1}}
    found = differences(scores, "a")
    assert list(found) == ["b"]
    assert (found["b"].mean, found["b"].seeds) == (pytest.approx(0.1), 1)


def test_the_sentence_names_the_correction_where_there_is_one() -> None:
    one, two = Difference(0.1, 3, 0, 0.2, 0.04), Difference(0.1, 3, 0, 0.2, 0.04)
    assert "Holm" not in how_tested({"b": one})
    assert "corrected for 2 comparisons by Holm" in how_tested({"b": one, "c": two})
