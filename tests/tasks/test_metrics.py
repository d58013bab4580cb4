"""Each metric against the equation it stands for, written out here in loops."""

import math
import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.kinds import KINDS

steady = settings(derandomize=True, deadline=None, max_examples=60)

classes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)
binary = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)
numbers = st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=3, max_size=30)


def f1_of(number: int, predicted: Sequence[int], expected: Sequence[int]) -> float:
    """Twice the hits over hits, false alarms and hits, misses; 0 without a hit."""
    hits = misses = alarms = 0
    for p, e in zip(predicted, expected, strict=True):
        hits += p == number == e
        alarms += p == number != e
        misses += e == number != p
    return 2 * hits / (2 * hits + alarms + misses) if hits else 0.0


def matthews_of(predicted: Sequence[int], expected: Sequence[int]) -> float:
    """Gorodkin's R_K, from counts: Matthews' coefficient for K classes."""
    n = len(predicted)
    right = sum(p == e for p, e in zip(predicted, expected, strict=True))
    both = {*predicted, *expected}
    p, e = ([each.count(k) for k in both] for each in (list(predicted), list(expected)))
    spread_p = n * n - sum(count * count for count in p)
    spread_e = n * n - sum(count * count for count in e)
    if not spread_p or not spread_e:
        return 0.0
    chance = sum(a * b for a, b in zip(p, e, strict=True))
    return (right * n - chance) / math.sqrt(spread_p * spread_e)


def pearson_of(a: Sequence[float], b: Sequence[float]) -> float:
    mean_a, mean_b = math.fsum(a) / len(a), math.fsum(b) / len(b)
    together = math.fsum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    alone = [math.fsum((x - mean) ** 2 for x in each) for each, mean in ((a, mean_a), (b, mean_b))]
    return together / math.sqrt(alone[0] * alone[1])


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


@steady
@given(classes)
def test_class_metrics_are_what_their_equations_say(pairs: list[tuple[int, int]]) -> None:
    predicted, expected = zip(*pairs, strict=True)
    right = sum(p == e for p, e in pairs)
    assert m.accuracy(predicted, expected) == pytest.approx(right / len(pairs))
    there = {*predicted, *expected}
    macro = sum(f1_of(each, predicted, expected) for each in there) / len(there)
    assert m.macro_f1(predicted, expected) == pytest.approx(macro)
    assert m.f1(predicted, expected) == pytest.approx(f1_of(1, predicted, expected))
    assert m.matthews(predicted, expected) == pytest.approx(
        matthews_of(predicted, expected), abs=1e-12
    )


@steady
@given(binary)
def test_f1_is_that_of_class_one(pairs: list[tuple[int, int]]) -> None:
    predicted, expected = zip(*pairs, strict=True)
    assert m.f1(predicted, expected) == pytest.approx(f1_of(1, predicted, expected))


@steady
@given(numbers)
def test_correlations_are_what_their_equations_say(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.round(column, 3).tolist() for column in np.array(pairs).T)
    if len(set(a)) > 1 and len(set(b)) > 1:
        assert m.pearson(a, b) == pytest.approx(pearson_of(a, b), abs=1e-9)
        assert m.spearman(a, b) == pytest.approx(pearson_of(ranks(a), ranks(b)), abs=1e-9)


@pytest.mark.parametrize(
    ("metric", "constant"),
    [
        *((metric, c) for metric in (m.pearson, m.spearman) for c in (0.0, 1.0, 0.1, 1e9)),
        *((m.matthews, c) for c in (0, 1, 9)),
    ],
)
def test_a_constant_correlates_with_nothing(metric: m.Compute, constant: float) -> None:
    assert metric([constant] * 7, [1, 2, 3, 1, 2, 3, 4], None) == 0.0
    assert metric([1, 2, 3, 1, 2, 3, 4], [constant] * 7, None) == 0.0


def test_what_is_constant_but_for_rounding_correlates_with_nothing() -> None:
    nearly = [0.1 + 1e-17 * number for number in range(6)] + [0.1 + 1.4e-17]
    assert m.pearson(nearly, [1, 2, 3, 1, 2, 3, 4]) == 0.0


@pytest.mark.parametrize("metric", [m.pearson, m.spearman, m.matthews])
def test_a_single_row_correlates_with_nothing(metric: m.Compute) -> None:
    assert metric([1], [2], None) == 0.0
    assert metric([1], [1], None) == 0.0


def test_f1_without_any_positive_is_zero() -> None:
    assert m.f1([0, 0], [0, 0]) == 0.0


def test_multirc_scores_answers_and_whole_questions() -> None:
    # Question a: both answers right. Question b: one of two. Question c: right.
    predicted, expected = [1, 0, 1, 0, 1], [1, 0, 1, 1, 1]
    groups = ["a", "a", "b", "b", "c"]
    assert m.exact_groups(predicted, expected, groups) == pytest.approx(2 / 3)
    # 3 true positives, 3 predicted, 4 expected.
    assert m.F1_OVER_ANSWERS.compute(predicted, expected, groups) == pytest.approx(6 / 7)


def test_groups_need_not_stand_together() -> None:
    assert m.exact_groups([1, 1, 0], [1, 1, 1], ["a", "b", "a"]) == 0.5


def test_texts_are_compared_without_case_punctuation_and_articles() -> None:
    assert m.normalised("The U.S., a  Nation\tof an-immigrants!") == "us nation of animmigrants"
    assert m.normalised(string.punctuation) == ""
    assert m.exact_match(["the Cat."], [("dog", "cat")]) == 1.0


def test_token_f1_takes_the_nearest_accepted_text() -> None:
    # "red big cat" against "big cat": 2 shared, 3 and 2 words: 4/5. Against "dog": 0.
    assert m.token_f1(["red big cat"], [("dog", "big cat")]) == pytest.approx(0.8)
    # A word counts as often as it stands in both: one of two and of one.
    assert m.token_f1(["no no"], [("no",)]) == pytest.approx(2 / 3)


def test_no_answer_is_right_where_none_is_expected() -> None:
    assert m.exact_match(["", "x"], [(), ()]) == 0.5
    assert m.token_f1(["", "x"], [(), ()]) == 0.5
    assert m.token_f1([""], [("x",)]) == 0.0


def test_texts_of_nothing_but_articles_are_scored_as_the_official_scripts_do() -> None:
    # SQuAD 1.1, MRQA and ReCoRD: equal once normalised, but no word in common.
    assert m.exact_match(["The"], [("a",)]) == 1.0
    assert m.token_f1(["The"], [("a",)]) == 0.0
    assert m.token_f1([""], [("a", "x")]) == 0.0
    # SQuAD 2, no answer: whatever normalises to nothing is none.
    assert m.token_f1(["the"], [()]) == m.exact_match(["the"], [()]) == 1.0


def test_entity_f1_counts_whole_entities() -> None:
    pytest.importorskip("seqeval")
    expected = [["B-per", "I-per", "O", "B-loc"], ["O", "B-loc"]]
    predicted = [["B-per", "I-per", "O", "O"], ["B-loc", "B-loc"]]
    # 2 right of 3 predicted and 3 expected.
    assert m.entity_f1(predicted, expected) == pytest.approx(2 / 3)


def test_entity_f1_without_entities_is_zero() -> None:
    pytest.importorskip("seqeval")
    assert m.entity_f1([["O", "O"]], [["O", "B-x"]]) == 0.0
    assert m.entity_f1([["O"]], [["O"]]) == 0.0


def test_multilabel_f1_is_micro_averaged() -> None:
    # 2 right of 3 predicted and 3 expected.
    predicted, expected = [{"a", "b"}, set(), {"c"}], [{"a"}, {"b"}, {"c"}]
    assert m.multilabel_f1(predicted, expected) == pytest.approx(2 / 3)
    # One label alone: 1 right of 2 predicted and 1 expected.
    assert m.multilabel_f1([("a",), ("a",)], [("a",), ()]) == pytest.approx(2 / 3)
    assert m.multilabel_f1([(), ()], [(), ()]) == 0.0


def test_entity_f1_of_tags_of_single_words_is_one_sentence() -> None:
    pytest.importorskip("seqeval")
    with pytest.raises(UserError, match=r"needs tags such as B-place.*found 'NOUN'.*accuracy"):
        m.entity_f1([["VERB", "NOUN"]], [["NOUN", "NOUN"]])
    assert m.marks_entities(("O", "B-x", "I-x", "S-y", "E-y"))
    assert not m.marks_entities(("O", "NOUN"))


def test_accuracy_of_tags_counts_words() -> None:
    assert m.tag_accuracy([["noun", "verb"], ["noun"]], [["noun", "noun"], ["noun"]]) == 2 / 3


def test_tables_show_scores_in_hundredths_and_perplexities_unchanged() -> None:
    assert m.shown("accuracy", 0.6625) == "accuracy 66.2"
    assert m.shown("perplexity", 43.25) == "perplexity 43.2"


def test_the_page_on_tasks_names_every_metric_of_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs/tasks.md").read_text()
    rows = page.split("| kind | metrics |")[1].split("\n\n")[0].splitlines()
    listed = {row.split("|")[1].strip(): row for row in rows if row.count("|") > 2}
    for kind in KINDS:
        for metric in kind.metrics:
            assert f"`{metric.name}`" in listed[kind.name], (kind.name, metric.name)
