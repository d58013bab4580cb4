"""The verdict: its sentences, its false alarms when seeds are added, and what describes it."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from taskmix.errors import UserError
from taskmix.rng import stream
from taskmix.studies.looks import LOOKS, read_looks, record_look
from taskmix.studies.paired import LOSSES, SCORES, Difference, differences, level_at
from taskmix.studies.verdict import (
    interquartile_mean,
    more_seeds,
    probability_of_improvement,
    verdict,
)

STUDIES = 1000


def test_a_winner_is_named_with_its_margin_evidence_and_cost() -> None:
    found = {
        "aimed": Difference(0.012, 5, 0.003, 0.021, 0.02),
        "exp3s": Difference(0.008, 5, 0.001, 0.015, 0.04),
        "size": Difference(-0.02, 5, -0.03, -0.01, 0.001),
        "warm": Difference(0.02, 5, -0.03, 0.06, 0.2),
    }
    made = verdict(found, "random", cost={"aimed": 98.0, "random": 100.0})
    assert made.sentence == (
        "aimed is 1.2 points above random (95% interval +0.3 to +2.1, 5 seeds, p 0.020) for 2% "
        "less compute. Also different from random: exp3s (+0.8), size (-2.0)."
    )
    assert (made.kind, made.contestant) == ("better", "aimed")


@pytest.mark.parametrize(
    ("difference", "kind", "words"),
    [
        (
            Difference(-0.02, 5, -0.03, -0.01, 0.001),
            "worse",
            "b is 2.0 points below a (95% interval -3.0 to -1.0, 5 seeds, p 0.001) for the same"
            " compute.",
        ),
        (
            Difference(0.002, 5, 0.001, 0.003, 0.02),
            "better",
            "b is 0.2 points above a (95% interval +0.1 to +0.3, 5 seeds, p 0.020) for the same"
            " compute: more than noise, but within half a point.",
        ),
        (
            Difference(0.001, 5, -0.004, 0.005, 0.5),
            "same",
            "a and b are practically the same: the 95% interval of the difference to a (-0.4 to"
            " +0.5) lies within half a point.",
        ),
        (
            Difference(0.0025, 5, -0.009, 0.014, 0.6, deviation=0.0093),
            "open",
            "No difference to a beyond noise: the 95% interval reaches from -0.9 to +1.4 (5 seeds,"
            " p 0.600); to detect a difference of one point, run 10 more seeds.",
        ),
        (
            Difference(0.01, 3, -0.5, 0.5, 0.9, deviation=0.3),
            "open",
            "No difference to a beyond noise: the 95% interval reaches from -50.0 to +50.0 (3"
            " seeds, p 0.900); to detect a difference of one point, it takes over 100 more seeds.",
        ),
        (
            Difference(0.02, 1),
            "untested",
            "b is 2.0 points above a with 1 seed, too few for a verdict: run 4 more seeds.",
        ),
        (
            Difference(0.02, 2),
            "untested",
            "b is 2.0 points above a with 2 seeds, too few for a verdict: run 3 more seeds.",
        ),
        (
            Difference(-0.02, 3),
            "untested",
            "b is 2.0 points below a with each of 3 seeds, so their noise is unknown.",
        ),
    ],
)
def test_every_result_has_its_sentence(difference: Difference, kind: str, words: str) -> None:
    made = verdict({"b": difference}, "a", SCORES, {"a": 100, "b": 100})
    assert (made.kind, made.sentence) == (kind, words)


def test_of_several_contestants_that_noise_explains_the_best_one_is_described() -> None:
    found = {
        "b": Difference(0.001, 3, -0.02, 0.02, 1.0, deviation=0.01),
        "c": Difference(0.004, 3, -0.01, 0.02, 1.0, deviation=0.01),
    }
    assert (
        "for the best of the others, c, reaches from -1.0 to +2.0" in verdict(found, "a").sentence
    )
    close = {name: Difference(0.0, 3, -0.003, 0.002, 1.0) for name in found}
    assert verdict(close, "a").sentence.startswith("a, b and c are practically the same")


def test_a_contestant_with_too_few_seeds_is_not_the_one_that_was_tested() -> None:
    found = {
        "few": Difference(0.05, 2),
        "b": Difference(0.001, 5, -0.02, 0.02, 1.0, deviation=0.01),
        "alike": Difference(0.06, 5),
    }
    made = verdict(found, "a")
    assert (made.kind, made.contestant) == ("open", "b")
    assert made.sentence.startswith(
        "No difference to a beyond noise: the 95% interval for the best"
    )
    assert made.sentence.endswith(" Not tested: few, alike.")
    found["b"] = Difference(0.012, 5, 0.003, 0.021, 0.02)
    assert verdict(found, "a").sentence == (
        "b is 1.2 points above a (95% interval +0.3 to +2.1, 5 seeds, p 0.020). Not tested: few, "
        "alike."
    )


def test_one_more_seed_is_one() -> None:
    close = Difference(0.004, 4, -0.001, 0.009, 0.2, deviation=0.002)
    assert verdict({"b": close}, "a").sentence.endswith("run 1 more seed.")


def test_losses_are_in_nats_and_lower_is_better() -> None:
    made = verdict({"b": Difference(0.12, 4, 0.1, 0.14, 0.001)}, "a", LOSSES)
    assert made.sentence == (
        "b is 0.120 nats below a (95% interval 0.100 to 0.140, 4 seeds, p 0.001)."
    )
    worse = verdict({"b": Difference(-0.12, 4, -0.14, -0.1, 0.001)}, "a", LOSSES).sentence
    assert worse == "b is 0.120 nats above a (95% interval 0.100 to 0.140, 4 seeds, p 0.001)."
    large = verdict({"b": Difference(9.85, 4, 9.5, 10.2, 0.001)}, "a", LOSSES).sentence
    assert "95% interval 9.500 to 10.200," in large
    open_ = verdict({"b": Difference(-0.1, 4, -0.3, 0.1, 0.2, deviation=1)}, "a", LOSSES).sentence
    assert "the 95% interval reaches from 0.300 above to 0.100 below (4 seeds" in open_


def test_one_contestant_has_nobody_to_beat() -> None:
    assert verdict({}, "a").kind == "untested"


@pytest.mark.parametrize("looks", [(5,), (3, 5), (5, 10), (3, 5, 10), tuple(range(3, 11))])
def test_seeds_added_between_looks_raise_few_false_alarms(looks: tuple[int, ...]) -> None:
    """Within 5% and 1.5: a rate of 5.5% exactly fails this with probability 7.5% a case."""
    rng, alarms = stream(5, "looks", *looks), 0
    for _ in range(STUDIES):
        scores = rng.normal(size=(2, looks[-1]))
        alarms += any(
            differences(
                {str(k): dict(enumerate(row[:seeds].tolist())) for k, row in enumerate(scores)},
                "0",
                {"1": looks[:k]},
            )["1"].significant
            for k, seeds in enumerate(looks)
        )
    assert 0.035 <= alarms / STUDIES <= 0.065


def test_the_limits_above_have_the_false_alarm_rate_that_is_stated() -> None:
    low, high = binom.cdf(34, STUDIES, 0.055), binom.sf(65, STUDIES, 0.055)
    assert low + high == pytest.approx(0.075, abs=0.005)


def test_the_levels_of_all_looks_sum_to_at_most_6_percent() -> None:
    for looks in ([3, 4, 5], [5, 10, 20, 1000], list(range(3, 300))):
        levels = [level_at(seeds, looks[:k]) for k, seeds in enumerate(looks)]
        assert levels[0] == 0.05
        assert sum(levels) <= 0.06


def test_an_interval_excludes_zero_where_the_test_of_that_look_rejects() -> None:
    rng = stream(6, "intervals")
    for _ in range(200):
        scores = {name: dict(enumerate(rng.normal(size=6).tolist())) for name in "ab"}
        scores["b"] = {seed: score + 2 for seed, score in scores["b"].items()}
        [found] = differences(scores, "a", {"b": [3]}).values()
        assert found.low is not None
        assert found.high is not None
        assert found.significant == (found.low > 0 or found.high < 0)


def test_the_seeds_that_are_recommended_detect_a_point_in_four_of_five_studies() -> None:
    """A power of 0.8: fewer than 280 of 400 with probability below 10^-6."""
    look = Difference(0.0, 5, -0.01, 0.01, 1.0, deviation=0.008)
    more = more_seeds(look)
    assert more is not None
    rng, seeds = stream(7, "power"), 5 + more
    detected = 0
    for _ in range(400):
        apart = dict(enumerate((0.01 + 0.008 * rng.normal(size=seeds)).tolist()))
        found = differences({"a": dict.fromkeys(apart, 0.0), "b": apart}, "a", {"b": [5]})
        detected += found["b"].significant
    assert 280 <= detected <= 360


def test_the_interquartile_mean_is_that_of_the_middle_half() -> None:
    scores = stream(8, "scores").normal(size=(6, 8))
    middle = sorted(scores.ravel().tolist())[12:36]
    found = interquartile_mean(scores)
    assert found.value == pytest.approx(sum(middle) / 24)
    assert found.low < found.value < found.high


def test_seeds_are_resampled_within_each_task() -> None:
    """Tasks differ by much and seeds do not: the interval has no width."""
    scores = np.tile(np.arange(8.0), (5, 1))
    found = interquartile_mean(scores)
    assert found.low == found.value == found.high == 3.5


def test_the_probability_of_improvement_counts_pairs_of_runs_by_task() -> None:
    rng = stream(9, "wins")
    scores, base = rng.integers(3, size=(4, 5)) / 3, rng.integers(3, size=(3, 5)) / 3
    wins = [
        [(x > y) + (x == y) / 2 for x, y in product(scores[:, task], base[:, task])]
        for task in range(5)
    ]
    expected = float(np.mean([np.mean(of_task) for of_task in wins]))
    assert probability_of_improvement(scores, base).value == pytest.approx(expected)
    assert probability_of_improvement(base, scores).value == pytest.approx(1 - expected)


def test_a_look_is_recorded_once_and_returned_to_later_ones(tmp_path: Path) -> None:
    assert record_look(tmp_path, {"a": 3, "b": 3}) == {"a": [], "b": []}
    assert record_look(tmp_path, {"a": 3}) == {"a": []}
    assert record_look(tmp_path, {"a": 5, "c": 2}) == {"a": [3], "c": []}
    looks = {"a": [3, 5], "c": [2], "b": [3]}  # the contestants of the newest look first
    assert list(read_looks(tmp_path).items()) == list(looks.items())
    (tmp_path / LOOKS).write_text('{"a": 3}')
    with pytest.raises(UserError, match=r"looks.json: expected numbers of seeds, found"):
        read_looks(tmp_path)
