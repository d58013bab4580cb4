"""The official metrics of the benchmarks."""

# Class metrics take class numbers, of which 1 is the positive one; correlations take numbers; text
# metrics take texts. A score that is not defined, such as the correlation of a constant, is 0. The
# scores of texts and of groups follow the official scripts of SQuAD, MRQA, ReCoRD and MultiRC.

import math
import re
import string
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from operator import eq
from typing import Any

import numpy as np

from taskmix.errors import UserError

Values = Sequence[Any]
Groups = Sequence[Any] | None
Compute = Callable[[Values, Values, Groups], float]


@dataclass(frozen=True)
class Metric:
    """A named score between 0 and 1 (correlations: -1 and 1), higher is better."""

    name: str
    compute: Compute  # from predicted and expected values and, if groups are scored, their groups
    package: str | None = None  # an optional dependency that computes it
    worth: Callable[[float], float] = float  # converts a value to a score, if it is none itself

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
    """Return the share of predictions that equal what was expected."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(expected, predicted))


def f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the harmonic mean of precision and recall of class 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(expected, predicted, labels=[1], average="macro", zero_division=0))


def macro_f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the unweighted mean of the F1 of every class that was predicted or expected."""
    from sklearn.metrics import f1_score

    return float(f1_score(expected, predicted, average="macro", zero_division=0))


def matthews(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return Matthews' correlation, for any number of classes (Gorodkin 2004)."""
    from sklearn.metrics import matthews_corrcoef

    constant = len(set(predicted)) == 1 or len(set(expected)) == 1
    return 0.0 if constant else float(matthews_corrcoef(expected, predicted))


def pearson(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return Pearson's correlation."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predicted, expected)


def spearman(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return Spearman's correlation: Pearson's of the ranks, with mean ranks for ties."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predicted, expected)


def exact_groups(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return MultiRC's EM (Khashabi et al. 2018): the share of questions with all answers right."""
    right: defaultdict[Any, bool] = defaultdict(lambda: True)
    places = range(len(predicted)) if groups is None else groups
    for group, p, e in zip(places, predicted, expected, strict=True):
        right[group] &= bool(p == e)
    return float(np.mean(list(right.values())))


def exact_match(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the share of texts that equal an accepted one after normalisation (SQuAD, ReCoRD)."""
    pairs = zip(predicted, expected, strict=True)
    return float(np.mean([_best(eq, text, accepted) for text, accepted in pairs]))


def token_f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the mean F1 of words between a text and its nearest accepted one (SQuAD, ReCoRD).

    As in the scripts of SQuAD 1.1, MRQA and ReCoRD, texts without a common word have an F1 of 0,
    even if both are empty after normalisation. Where no text is accepted (SQuAD 2: the question
    has no answer), an empty text scores 1 and any other 0.
    """
    pairs = zip(predicted, expected, strict=True)
    return float(np.mean([_best(_overlap, text, accepted) for text, accepted in pairs]))


def entity_f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the micro-averaged F1 of whole entities, by seqeval; needs the extra `tagging`."""
    ENTITY_F1.check()
    from seqeval.metrics import f1_score

    for tag in sorted({tag for tags in (*expected, *predicted) for tag in tags}):
        if not marks_entities([tag]):
            raise UserError(
                f"entity F1 needs tags such as B-place, I-place and O, found {tag!r}; "
                "tags of single words are scored by the metric accuracy."
            )
    lists = ([list(tags) for tags in values] for values in (expected, predicted))
    return float(f1_score(*lists, zero_division=0))


def marks_entities(tags: Iterable[str]) -> bool:
    """Return whether all tags are such as B-place, I-place and O, as entity F1 needs."""
    return all(tag in tuple("OBIES") or tag[:2] in ("B-", "I-", "E-", "S-") for tag in tags)


def tag_accuracy(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the share of words whose tag is the expected one."""
    return accuracy(*(list(chain.from_iterable(values)) for values in (predicted, expected)))


def multilabel_f1(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the micro-averaged F1 over all labels; a value is the set of a row's labels."""
    from sklearn.metrics import f1_score

    names = sorted({name for labels in (*predicted, *expected) for name in labels})
    p, e = (
        [int(name in labels) for labels in rows for name in names] for rows in (predicted, expected)
    )
    return float(f1_score(e, p, zero_division=0)) if names else 0.0


def perplexity(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return exp(mean token loss); a value is a row's summed loss, tokens and misses."""
    loss, tokens = (sum(row[place] for row in predicted) for place in (0, 1))
    return math.exp(min(loss / max(tokens, 1), _MAX_LOSS))


def greedy_match(predicted: Values, expected: Values, groups: Groups = None) -> float:
    """Return the share of answers that greedy decoding gives; a value is as in `perplexity`."""
    # It gives an answer if and only if each token is the most probable one after those before it.
    return float(np.mean([row[2] == 0 for row in predicted]))


def _inverse(value: float) -> float:
    return 1 / value


_MAX_LOSS = 700.0
"""The perplexity of a larger mean loss would overflow."""


def normalised(text: str) -> str:
    """Normalise a text as SQuAD's scorer does: lower case, no punctuation, no articles."""
    text = "".join(letter for letter in text.lower() if letter not in _PUNCTUATION)
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
"""Its score is its inverse, the geometric mean of the tokens' probabilities."""
GREEDY_MATCH = Metric("exact_match", greedy_match)


def shown(name: str, value: float) -> str:
    """Format a metric for tables: a score in hundredths, a perplexity unchanged."""
    return f"{name} {value if name == PERPLEXITY.name else 100 * value:.1f}"


def _correlation(
    measure: Callable[[Values, Values], Any], predicted: Values, expected: Values
) -> float:
    """Return SciPy's correlation; 0 for a single pair and for (nearly) constant numbers."""
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
    """Return the score against the nearest accepted text; without any, an empty text is right."""
    if not accepted:
        return float(not normalised(text))
    return max(score(normalised(text), normalised(other)) for other in accepted)


def _overlap(a: str, b: str) -> float:
    words_a, words_b = a.split(), b.split()
    both = (Counter(words_a) & Counter(words_b)).total()
    return 2 * both / (len(words_a) + len(words_b)) if both else 0.0
