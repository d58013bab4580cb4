"""The official metrics of the benchmarks.

Class metrics take class numbers, of which 1 is the positive one; correlations take numbers; text
metrics take texts. A score that is not defined, such as the correlation of a constant, is 0.
scikit-learn, SciPy and seqeval compute what they know; the scores of texts and of groups follow the
official scripts of SQuAD, MRQA, ReCoRD and MultiRC.
"""

import math
import re
import string
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from taskmix.errors import UserError

Values = Sequence[Any]
Groups = Sequence[Any] | None
Compute = Callable[[Values, Values, Groups], float]


def _itself(value: float) -> float:
    return value


@dataclass(frozen=True)
class Metric:
    """A named score between 0 and 1 (correlations: -1 and 1), higher is better.

    Args:
        name: how tables call it.
        compute: predicted and expected values, and the group of each where the benchmark scores
            groups, to a number.
        package: what is needed to compute it, beyond what taskmix always needs.
        worth: what a value of it adds to a task's score, for a metric that is no such score itself.
    """

    name: str
    compute: Compute
    package: str | None = None
    worth: Callable[[float], float] = _itself

    def check(self) -> None:
        """Raise if the package that computes it is missing."""
        if self.package is not None and not _installed(self.package):
            raise UserError(f"{self.name} needs {self.package}; pip install 'taskmix[tagging]'.")


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # a module without a spec
        return False


def accuracy(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the share of predictions that equal what was expected.

    >>> accuracy([1, 0, 2, 2], [1, 0, 2, 1])
    0.75
    """
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(expected, predicted))


def f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the harmonic mean of precision and recall of class 1.

    >>> f1([1, 1, 0, 0], [1, 0, 1, 0])
    0.5
    """
    from sklearn.metrics import f1_score

    return float(f1_score(expected, predicted, labels=[1], average="macro", zero_division=0))


def macro_f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the unweighted mean of the F1 of every class that was predicted or expected.

    >>> macro_f1([0, 0, 1, 2], [0, 1, 1, 2])
    0.777...
    """
    from sklearn.metrics import f1_score

    return float(f1_score(expected, predicted, average="macro", zero_division=0))


def matthews(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Matthews' correlation of two classifications, for any number of classes (Gorodkin 2004).

    >>> matthews([1, 1, 0, 0], [1, 0, 1, 0])
    0.0
    """
    from sklearn.metrics import matthews_corrcoef

    constant = len(set(predicted)) == 1 or len(set(expected)) == 1
    return 0.0 if constant else float(matthews_corrcoef(expected, predicted))


def pearson(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Pearson's correlation.

    >>> round(pearson([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), 12)
    1.0
    """
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predicted, expected)


def spearman(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Spearman's correlation: Pearson's of the ranks, ties sharing the mean of theirs.

    >>> round(spearman([1.0, 2.0, 3.0], [2.0, 4.0, 1000.0]), 12)
    1.0
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predicted, expected)


def exact_groups(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """MultiRC's EM (Khashabi et al. 2018): the share of questions whose answers are all right.

    >>> exact_groups([1, 0, 1], [1, 0, 0], ["a", "a", "b"])
    0.5
    """
    right: defaultdict[Any, bool] = defaultdict(lambda: True)
    places = range(len(predicted)) if groups is None else groups
    for group, p, e in zip(places, predicted, expected, strict=True):
        right[group] &= bool(p == e)
    return float(np.mean(list(right.values())))


def exact_match(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """The share of texts that equal one of the accepted ones, once normalised (SQuAD, ReCoRD).

    >>> exact_match(["The Panthers!", "10"], [("panthers",), ("ten", "eleven")])
    0.5
    """
    pairs = zip(predicted, expected, strict=True)
    return float(np.mean([_best(_same, text, accepted) for text, accepted in pairs]))


def token_f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """The mean F1 between the words of a text and the accepted one nearest to it (SQuAD, ReCoRD).

    As in the scripts of SQuAD 1.1, MRQA and ReCoRD, no common word is an F1 of 0, even where
    neither text has a word left once normalised. Where no text is accepted (SQuAD 2: the question
    has no answer), an empty text scores 1 and any other 0.

    >>> token_f1(["in the 1990s"], [("1990s", "the nineties")])
    0.666...
    """
    pairs = zip(predicted, expected, strict=True)
    return float(np.mean([_best(_overlap, text, accepted) for text, accepted in pairs]))


def entity_f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the micro-averaged F1 of whole entities, by seqeval; needs the extra `tagging`.

    >>> entity_f1([["B-loc", "I-loc", "O"]], [["B-loc", "O", "O"]])
    0.0
    """
    ENTITY_F1.check()
    from seqeval.metrics import f1_score

    for tag in sorted({tag for tags in (*expected, *predicted) for tag in tags}):
        if not marks_entities([tag]):
            raise UserError(
                f"entity F1 needs tags such as B-place, I-place and O, found {tag!r}; "
                "tags of single words are scored by the metric accuracy."
            )
    return float(f1_score(_lists(expected), _lists(predicted), zero_division=0))


def marks_entities(tags: Iterable[str]) -> bool:
    """Whether all tags say where an entity begins and goes on, so that entity F1 can score them.

    >>> marks_entities(["O", "B-loc", "I-loc"]), marks_entities(["NOUN", "VERB"])
    (True, False)
    """
    return all(tag in tuple("OBIES") or tag[:2] in ("B-", "I-", "E-", "S-") for tag in tags)


def tag_accuracy(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the share of words whose tag is the expected one.

    >>> tag_accuracy([["noun", "verb"], ["noun"]], [["noun", "noun"], ["noun"]])
    0.666...
    """
    return accuracy([tag for tags in predicted for tag in tags], [t for ts in expected for t in ts])


def multilabel_f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """The micro-averaged F1 over all labels of all rows; a value is the set of a row's labels.

    >>> multilabel_f1([{"a"}, {"a", "b"}], [{"a"}, {"b"}])
    0.8
    """
    from sklearn.metrics import f1_score

    names = sorted({name for labels in (*predicted, *expected) for name in labels})
    p, e = (
        [int(name in labels) for labels in each for name in names] for each in (predicted, expected)
    )
    return float(f1_score(e, p, zero_division=0)) if names else 0.0


def perplexity(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return e to the mean loss of all tokens; a value is a row's summed loss, tokens and misses.

    >>> round(perplexity([(2.0, 2, 0), (1.0, 1, 1)], ["a text", "text"]), 3)
    2.718
    """
    loss, tokens = (sum(row[place] for row in predicted) for place in (0, 1))
    return math.exp(min(loss / max(tokens, 1), _LARGEST))


def greedy_match(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the share of answers that greedy decoding gives token for token, and ends there.

    A value is a row's summed loss, tokens and misses. Greedy decoding gives an answer if and only
    if each of its tokens is the most probable one after those before it, so that one pass with the
    answer in place finds it out.

    >>> greedy_match([(2.0, 2, 0), (1.0, 1, 1)], ["a text", "text"])
    0.5
    """
    return float(np.mean([row[2] == 0 for row in predicted]))


def _inverse(value: float) -> float:
    return 1 / value


_LARGEST = 700.0
"""Of a larger mean loss there is no perplexity that is a number."""


def normalised(text: str) -> str:
    """Return a text as SQuAD's scorer compares it: lower case, no punctuation, no articles.

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
F1_OVER_ANSWERS = Metric("f1a", f1)
"""MultiRC's F1a (Khashabi et al. 2018): the F1 over all answers of all questions alike."""
EXACT_GROUPS = Metric("em", exact_groups)
EXACT_MATCH = Metric("em", exact_match)
TOKEN_F1 = Metric("f1", token_f1)
ENTITY_F1 = Metric("entity_f1", entity_f1, "seqeval")
TAG_ACCURACY = Metric("accuracy", tag_accuracy)
MULTILABEL_F1 = Metric("micro_f1", multilabel_f1)
PERPLEXITY = Metric("perplexity", perplexity, worth=_inverse)
"""Its part of a score is its inverse, the geometric mean of the tokens' probabilities."""
GREEDY_MATCH = Metric("exact_match", greedy_match)


def shown(name: str, value: float) -> str:
    """Return a metric as tables give it: a score in hundredths, a perplexity as it is.

    >>> shown("accuracy", 0.6625), shown("perplexity", 43.25)
    ('accuracy 66.2', 'perplexity 43.2')
    """
    return f"{name} {value if name == PERPLEXITY.name else 100 * value:.1f}"


def _correlation(
    measure: Callable[[Values, Values], Any], predicted: Values, expected: Values
) -> float:
    """A correlation by SciPy; 0 for a single pair and for numbers that are (nearly) constant."""
    from scipy.stats import DegenerateDataWarning

    if len(predicted) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", DegenerateDataWarning)
        try:
            return float(measure(predicted, expected).statistic)
        except DegenerateDataWarning:
            return 0.0


def _best(score: Callable[[str, str], float], text: str, accepted: Sequence[str]) -> float:
    """The score against the nearest accepted text; no answer is expected where none is given."""
    if not accepted:
        return float(not normalised(text))
    return max(score(normalised(text), normalised(each)) for each in accepted)


def _same(a: str, b: str) -> float:
    return float(a == b)


def _overlap(a: str, b: str) -> float:
    words_a, words_b = a.split(), b.split()
    both = (Counter(words_a) & Counter(words_b)).total()
    return 2 * both / (len(words_a) + len(words_b)) if both else 0.0


def _lists(values: Sequence[Any]) -> list[list[str]]:
    return [list(each) for each in values]
