"""The difficulty of a data set, against its formulas written out."""

from collections import Counter
from math import log, sqrt
from pathlib import Path

import pytest

from taskmix import RunConfig
from taskmix.tasks.difficulty import (
    _frequent,
    difficulty,
    hellinger,
    task_difficulty,
    words_of,
)
from taskmix.tasks.kinds import Regress
from taskmix.tasks.task import Task
from taskmix.training.prepare import resolve

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
    assert found.similarity == pytest.approx(1 - sqrt(0.5)), "no word in common"
    fast = {"race": 3, "red": 2, "cars": 1, "bikes": 1}
    entropies = [-sum(n / 7 * log(n / 7) for n in fast.values()), log(3)]
    assert found.information == pytest.approx(sum(entropies) / 4)
    parts = (found.distinct, found.imbalance, found.diversity, found.similarity, found.information)
    assert found.total == pytest.approx(sum(parts))


def test_shared_words_count_in_similarity_and_information() -> None:
    found = difficulty([("apple banana", "a"), ("apple cherry", "b")])
    assert found.similarity == pytest.approx(1 - sqrt(0.25))
    shared = 0.5 * (log(0.5) - log(0.5) - log(0.5))
    assert found.information == pytest.approx((2 * log(2) + 2 * shared) / 4)


def test_words_have_no_punctuation_and_clitics_are_no_words() -> None:
    assert words_of("The dog's toy: don't!") == ["the", "dogs", "toy", "dont"]
    rows = [(f"it's sun{k} and don't t s", str(k % 2)) for k in range(40)]
    assert not {"s", "t", "and"} & set(_frequent(Counter(words_of(" ".join(r[0] for r in rows)))))


def test_hellinger_sums_over_the_words_of_the_first_class() -> None:
    one, other = {"a": 3, "b": 1}, {"b": 2, "c": 2}
    gaps = [(sqrt(3 / 4) - 0) ** 2, (sqrt(1 / 4) - sqrt(2 / 4)) ** 2]
    assert hellinger(one, other) == pytest.approx(sqrt(sum(gaps) / 2))
    assert hellinger(one, one) == 0
    assert hellinger({"a": 1}, {"b": 5}) == pytest.approx(sqrt(0.5))


GLUE = {"mnli": 4.19, "cola": 3.75, "rte": 3.60, "qqp": 3.60, "mrpc": 3.48, "sst2": 3.34}
"""The totals of the authors' code on the same files, in the order of Pilault et al., Figure 8."""


def test_glue_is_as_difficult_as_by_the_authors_code(data: Path) -> None:
    tasks = resolve(RunConfig(tasks=[f"glue/{name}" for name in GLUE], data=str(data)))
    totals = [task_difficulty(task).total for task in tasks]
    assert totals == pytest.approx(list(GLUE.values()), abs=0.006)
    assert totals == sorted(totals, reverse=True)


def test_more_classes_that_look_alike_are_more_difficult() -> None:
    easy = difficulty([("sun", "a"), ("moon", "b")] * 20)
    hard = difficulty([("sun moon", name) for name in "abcd"] * 10)
    assert hard.total > easy.total + 1


def test_what_chooses_no_class_has_none() -> None:
    assert task_difficulty(Task("a", Regress(), {}, ())) is None


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="expected two classes or more, found 1"):
        difficulty([("sun", "a")])
