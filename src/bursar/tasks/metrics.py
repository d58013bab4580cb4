"""The official metrics of the benchmarks.

Class metrics take class numbers, of which 1 is the positive one; correlations take numbers; text
metrics take texts. A score that is not defined, such as the correlation of a constant, is 0.
"""

import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bursar.errors import UserError

Compute = Callable[[Sequence[Any], Sequence[Any], Sequence[Any] | None], float]


@dataclass(frozen=True)
class Metric:
    """A named score between 0 and 1 (correlations: -1 and 1), higher is better.

    Args:
        name: how tables call it.
        compute: predicted and expected values, and the group of each where the benchmark scores
            groups, to a number.
    """

    name: str
    compute: Compute


def accuracy(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """The share of predictions that equal what was expected.

    >>> accuracy([1, 0, 2, 2], [1, 0, 2, 1])
    0.75
    """
    return float(np.mean(np.asarray(predicted) == np.asarray(expected)))


def f1(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """The harmonic mean of precision and recall of class 1.

    >>> f1([1, 1, 0, 0], [1, 0, 1, 0])
    0.5
    """
    return _f1_of(1, predicted, expected)


def macro_f1(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """The unweighted mean of the F1 of every class that was predicted or expected.

    >>> macro_f1([0, 0, 1, 2], [0, 1, 1, 2])
    0.777...
    """
    classes = sorted({*predicted, *expected})
    return float(np.mean([_f1_of(each, predicted, expected) for each in classes]))


def matthews(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """Matthews' correlation of two classifications, for any number of classes (Gorodkin 2004).

    It is the correlation of their one-hot vectors.

    >>> matthews([1, 1, 0, 0], [1, 0, 1, 0])
    0.0
    """
    classes = np.unique([*predicted, *expected])
    p = np.asarray(predicted)[:, None] == classes
    e = np.asarray(expected)[:, None] == classes
    return _correlation(p.astype(np.float64), e.astype(np.float64))


def pearson(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """Pearson's correlation.

    >>> round(pearson([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), 12)
    1.0
    """
    return _correlation(_column(predicted), _column(expected))


def spearman(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """Spearman's correlation: Pearson's of the ranks, ties sharing the mean of theirs.

    >>> round(spearman([1.0, 2.0, 3.0], [2.0, 4.0, 1000.0]), 12)
    1.0
    """
    from scipy.stats import rankdata

    return _correlation(_column(rankdata(predicted)), _column(rankdata(expected)))


def f1_over_answers(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """MultiRC's F1a (Khashabi et al. 2018): the F1 over all answers of all questions alike.

    >>> f1_over_answers([1, 0, 1], [1, 1, 0], ["a", "a", "b"])
    0.5
    """
    return f1(predicted, expected)


def exact_groups(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """MultiRC's EM (Khashabi et al. 2018): the share of questions whose answers are all right.

    >>> exact_groups([1, 0, 1], [1, 0, 0], ["a", "a", "b"])
    0.5
    """
    right: defaultdict[Any, bool] = defaultdict(lambda: True)
    places = range(len(predicted)) if groups is None else groups
    for group, p, e in zip(places, predicted, expected, strict=True):
        right[group] &= bool(p == e)
    return float(np.mean(list(right.values())))


def exact_match(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """The share of texts that equal one of the accepted ones, once normalised (SQuAD, ReCoRD).

    >>> exact_match(["The Panthers!", "10"], [("panthers",), ("ten", "eleven")])
    0.5
    """
    pairs = zip(predicted, expected, strict=True)
    return float(np.mean([_best(_same, text, accepted) for text, accepted in pairs]))


def token_f1(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """The mean F1 between the words of a text and the accepted one nearest to it (SQuAD, ReCoRD).

    >>> token_f1(["in the 1990s"], [("1990s", "the nineties")])
    0.666...
    """
    pairs = zip(predicted, expected, strict=True)
    return float(np.mean([_best(_overlap, text, accepted) for text, accepted in pairs]))


def entity_f1(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """The micro-averaged F1 of whole entities, by seqeval; needs the extra `tagging`.

    >>> entity_f1([["B-loc", "I-loc", "O"]], [["B-loc", "O", "O"]])
    0.0
    """
    try:
        from seqeval.metrics import f1_score
    except ImportError:
        raise UserError("entity F1 needs seqeval; pip install 'bursar[tagging]'.") from None
    return float(f1_score(_lists(expected), _lists(predicted), zero_division=0))


def tag_accuracy(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """The share of words whose tag is the expected one.

    >>> tag_accuracy([["noun", "verb"], ["noun"]], [["noun", "noun"], ["noun"]])
    0.666...
    """
    return accuracy([tag for tags in predicted for tag in tags], [t for ts in expected for t in ts])


def multilabel_f1(
    predicted: Sequence[Any], expected: Sequence[Any], groups: Sequence[Any] | None = None
) -> float:
    """The micro-averaged F1 over all labels of all rows; a value is the set of a row's labels.

    >>> multilabel_f1([{"a"}, {"a", "b"}], [{"a"}, {"b"}])
    0.8
    """
    pairs = [(set(p), set(e)) for p, e in zip(predicted, expected, strict=True)]
    both = sum(len(p & e) for p, e in pairs)
    return _f1(both, sum(len(p) for p, _ in pairs), sum(len(e) for _, e in pairs))


def normalised(text: str) -> str:
    """A text as SQuAD's scorer compares it: lower case, no punctuation, no articles.

    >>> normalised("The  Answer, of course.")
    'answer of course'
    """
    text = "".join(each for each in text.lower() if each not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


_PUNCTUATION = frozenset(string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

ACCURACY = Metric("accuracy", accuracy)
F1 = Metric("f1", f1)
MACRO_F1 = Metric("macro_f1", macro_f1)
MATTHEWS = Metric("matthews", matthews)
PEARSON = Metric("pearson", pearson)
SPEARMAN = Metric("spearman", spearman)
F1_OVER_ANSWERS = Metric("f1a", f1_over_answers)
EXACT_GROUPS = Metric("em", exact_groups)
EXACT_MATCH = Metric("em", exact_match)
TOKEN_F1 = Metric("f1", token_f1)
ENTITY_F1 = Metric("entity_f1", entity_f1)
TAG_ACCURACY = Metric("accuracy", tag_accuracy)
MULTILABEL_F1 = Metric("micro_f1", multilabel_f1)


def _f1_of(number: Any, predicted: Sequence[Any], expected: Sequence[Any]) -> float:
    p = np.asarray(predicted) == number
    e = np.asarray(expected) == number
    return _f1(int((p & e).sum()), int(p.sum()), int(e.sum()))


def _f1(both: int, predicted: int, expected: int) -> float:
    return 2 * both / (predicted + expected) if both else 0.0


def _column(values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)[:, None]


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """The correlation of two columns or, summed over columns, of two tables; 0 for a constant."""
    a, b = _centred(a), _centred(b)
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum()) / scale if scale else 0.0


def _centred(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Deviations from the mean, all of them 0 where rounding is all that is left of them."""
    mean = values.mean(axis=0)
    constant = np.ptp(values, axis=0) <= 1e-12 * np.abs(mean)
    return np.where(constant, 0.0, values - mean)


def _best(score: Callable[[str, str], float], text: str, accepted: Sequence[str]) -> float:
    """The score against the nearest accepted text; no answer is expected where none is given."""
    return max(score(normalised(text), normalised(each)) for each in accepted or ("",))


def _same(a: str, b: str) -> float:
    return float(a == b)


def _overlap(a: str, b: str) -> float:
    words_a, words_b = a.split(), b.split()
    if not words_a or not words_b:
        return float(words_a == words_b)
    both = (Counter(words_a) & Counter(words_b)).total()
    return _f1(both, len(words_a), len(words_b))


def _lists(values: Sequence[Any]) -> list[list[str]]:
    return [list(each) for each in values]
