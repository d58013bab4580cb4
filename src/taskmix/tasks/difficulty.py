"""The difficulty of text classification, by statistics of the data alone."""

import string
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import log, sqrt

from taskmix.tasks.kinds import Classify
from taskmix.tasks.rows import TextRow
from taskmix.tasks.task import Task

FREQUENT_WORDS = 10
"""The number of a class's most frequent words whose information is measured."""

STOP_WORDS = """
a about above after again against ain all am an and any are aren as at be because been before
being below between both but by can couldn d did didn do does doesn doing don down during each
few for from further had hadn has hasn have haven having he her here hers herself him himself
his how i if in into is isn it its itself just ll m ma me mightn more most mustn my myself needn
no nor not now o of off on once only or other our ours ourselves out over own re s same shan she
should shouldn so some such t than that the their theirs them themselves then there these they
this those through to too under until up ve very was wasn we were weren what when where which
while who whom why will with won wouldn y you your yours yourself yourselves
"""
"""The English stop words of NLTK, which the authors' code uses."""
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Words = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The five statistics of Collins, Rozanov and Zhang (2018); their sum is the difficulty.

    They are computed as in the authors' code, which the figures of Pilault et al. (2021) use.
    """

    distinct: float  # different words over all words
    imbalance: float  # Σ |1/C - share of the class| over the C classes
    diversity: float  # entropy of the classes, in nats
    similarity: float  # 1 - the smallest Hellinger distance between the words of two classes
    information: float  # mutual information of frequent words, mean over all pairs of classes

    @property
    def total(self) -> float:
        """The difficulty; a data set that is hard to learn has about 4 or more."""
        return self.distinct + self.imbalance + self.diversity + self.similarity + self.information


def difficulty(rows: Iterable[tuple[str, str]]) -> Difficulty:
    """Return the difficulty of pairs of a text and its class."""
    words: dict[str, Counter[str]] = {}
    labels: Counter[str] = Counter()
    for text, label in rows:
        labels[label] += 1
        words.setdefault(label, Counter()).update(words_of(text))
    if len(labels) < 2:
        raise ValueError(f"rows: expected two classes or more, found {len(labels)}")
    vocabulary: Counter[str] = sum(words.values(), Counter())
    shares = [count / labels.total() for count in labels.values()]
    return Difficulty(
        len(vocabulary) / max(1, vocabulary.total()),
        sum(abs(1 / len(labels) - share) for share in shares),
        -sum(share * log(share) for share in shares),
        1 - min(hellinger(one, other) for one, other in combinations(words.values(), 2)),
        _information([_frequent(class_words) for class_words in words.values()]),
    )


def words_of(text: str) -> list[str]:
    """Return the words of a text as in the authors' code: ASCII letters without punctuation.

    >>> words_of("It's a café, isn't it?")
    ['its', 'a', 'caf', 'isnt', 'it']
    """
    ascii_text = text.encode("ascii", errors="ignore").decode()
    return ascii_text.translate(_PUNCTUATION).lower().split()


def task_difficulty(task: Task) -> Difficulty | None:
    """Return the difficulty of a task's training rows; None if it does not classify texts."""
    if not isinstance(task.kind, Classify):
        return None
    rows = (row for row in task.split("train").rows() if isinstance(row, TextRow))
    pairs = [(f"{row.text} {row.pair or ''}", str(row.label)) for row in rows]
    return difficulty(pairs) if pairs else None


def hellinger(one: Words, other: Words) -> float:
    """Return the Hellinger distance of two distributions of words as the authors' code has it.

    It sums over the words of the first distribution only, so it is a lower bound of the distance.
    """
    first, second = max(1, sum(one.values())), max(1, sum(other.values()))
    gaps = (
        (sqrt(count / first) - sqrt(other.get(word, 0) / second)) ** 2
        for word, count in one.items()
    )
    return sqrt(sum(gaps) / 2)


def _frequent(words: Counter[str]) -> dict[str, int]:
    """Return the most frequent words of a class without stop words."""
    stop_words = set(STOP_WORDS.split())
    kept = {word: count for word, count in words.items() if word not in stop_words}
    ranked = sorted(kept.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:FREQUENT_WORDS])


def _information(classes: list[dict[str, int]]) -> float:
    """Return the mean over all pairs of classes, also of a class with itself."""
    table = [[_shared(one, other) for other in classes] for one in classes]
    return sum(map(sum, table)) / len(classes) ** 2


def _shared(one: Words, other: Words) -> float:
    first, second = sum(one.values()), sum(other.values())
    if one is other:  # the entropy of its words
        return -sum(n / first * log(n / first) for n in one.values())
    total = 0.0
    for word in sorted(one.keys() & other.keys()):
        both = (one[word] + other[word]) / (first + second)
        total += both * (log(both) - log(one[word] / first) - log(other[word] / second))
    return total
