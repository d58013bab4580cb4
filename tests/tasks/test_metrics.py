import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from bursar.tasks import metrics as m

steady = settings(derandomize=True, deadline=None, max_examples=60)

classes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)
binary = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)
numbers = st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=3, max_size=30)


@steady
@given(classes)
def test_class_metrics_agree_with_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    predicted, expected = zip(*pairs, strict=True)
    assert m.accuracy(predicted, expected) == pytest.approx(sk.accuracy_score(expected, predicted))
    assert m.macro_f1(predicted, expected) == pytest.approx(
        sk.f1_score(expected, predicted, average="macro", zero_division=0)
    )
    if len({*predicted, *expected}) > 1:
        assert m.matthews(predicted, expected) == pytest.approx(
            sk.matthews_corrcoef(expected, predicted), abs=1e-12
        )


@steady
@given(binary)
def test_f1_is_that_of_class_one(pairs: list[tuple[int, int]]) -> None:
    predicted, expected = zip(*pairs, strict=True)
    assert m.f1(predicted, expected) == pytest.approx(
        sk.f1_score(expected, predicted, zero_division=0)
    )


@steady
@given(numbers)
def test_correlations_agree_with_scipy(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.round(column, 3) for column in np.array(pairs).T)
    if np.ptp(a) > 0 and np.ptp(b) > 0:
        assert m.pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-9)
        assert m.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)


@pytest.mark.parametrize("metric", [m.pearson, m.spearman, m.matthews])
@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, 1e9])
def test_a_constant_correlates_with_nothing(metric: m.Compute, constant: float) -> None:
    assert metric([constant] * 7, [1, 2, 3, 1, 2, 3, 4], None) == 0.0
    assert metric([1, 2, 3, 1, 2, 3, 4], [constant] * 7, None) == 0.0


def test_f1_without_any_positive_is_zero() -> None:
    assert m.f1([0, 0], [0, 0]) == 0.0


def test_multirc_scores_answers_and_whole_questions() -> None:
    # Question a: both answers right. Question b: one of two. Question c: right.
    predicted, expected = [1, 0, 1, 0, 1], [1, 0, 1, 1, 1]
    groups = ["a", "a", "b", "b", "c"]
    assert m.exact_groups(predicted, expected, groups) == pytest.approx(2 / 3)
    # 3 true positives, 3 predicted, 4 expected.
    assert m.f1_over_answers(predicted, expected, groups) == pytest.approx(6 / 7)


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
    predicted, expected = [{"a", "b"}, set(), {"c"}], [{"a"}, {"b"}, {"c"}]
    indicator = [[1, 1, 0], [0, 0, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert m.multilabel_f1(predicted, expected) == pytest.approx(
        sk.f1_score(np.array(indicator[1]), np.array(indicator[0]), average="micro")
    )
