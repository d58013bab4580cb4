"""The difficulty of a data set, against its formulas written out."""

from math import log, sqrt

import pytest

from taskmix.tasks.difficulty import difficulty, hellinger, task_difficulty
from taskmix.tasks.kinds import Regress
from taskmix.tasks.task import Task

ROWS = [
    ("red cars race", "fast"),
    ("red bikes race race", "fast"),
    ("blue snails rest", "slow"),
]


def test_each_statistic_is_its_formula() -> None:
    found = difficulty(ROWS)
    assert found.distinct == pytest.approx(7 / 10)
    assert found.imbalance == pytest.approx(2 * (2 / 3 - 1 / 2))
    assert found.diversity == pytest.approx(-(2 / 3 * log(2 / 3) + 1 / 3 * log(1 / 3)))
    assert found.similarity == pytest.approx(0.0), "no word in common"
    fast = {"race": 3, "red": 2, "cars": 1, "bikes": 1}
    entropies = [-sum(n / 7 * log(n / 7) for n in fast.values()), log(3)]
    assert found.information == pytest.approx(sum(entropies) / 4)
    parts = (found.distinct, found.imbalance, found.diversity, found.similarity, found.information)
    assert found.total == pytest.approx(sum(parts))


def test_shared_words_count_in_similarity_and_information() -> None:
    found = difficulty([("apple banana", "a"), ("apple cherry", "b")])
    assert found.similarity == pytest.approx(1 - sqrt(0.5))
    shared = 0.5 * (log(0.5) - log(0.5) - log(0.5))
    assert found.information == pytest.approx((2 * log(2) + 2 * shared) / 4)


def test_hellinger_is_a_distance() -> None:
    one, other = {"a": 3, "b": 1}, {"b": 2, "c": 2}
    assert hellinger(one, other) == hellinger(other, one)
    assert hellinger(one, one) == 0
    assert hellinger({"a": 1}, {"b": 5}) == pytest.approx(1)


def test_more_classes_that_look_alike_are_more_difficult() -> None:
    easy = difficulty([("sun", "a"), ("moon", "b")] * 20)
    hard = difficulty([("sun moon", name) for name in "abcd"] * 10)
    assert hard.total > easy.total + 1


def test_what_chooses_no_class_has_none() -> None:
    assert task_difficulty(Task("a", Regress(), {}, ())) is None


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="expected two classes or more, found 1"):
        difficulty([("sun", "a")])
