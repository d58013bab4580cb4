"""How difficult a data set of texts is to classify, by its statistics alone."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import log, sqrt

from taskmix.tasks.kinds import Classify
from taskmix.tasks.rows import TextRow
from taskmix.tasks.task import Task

TOP = 10
"""The most frequent words of a class that its information is about."""

Words = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The five statistics of Collins, Rozanov and Zhang (2018); their sum is the difficulty.

    Args:
        distinct: different words over all words.
        imbalance: Σ |1/C - the class's share| over the C classes.
        diversity: the entropy of the classes, in nats.
        similarity: 1 less the smallest Hellinger distance of two classes' words.
        information: the mean over all pairs of classes of the information in their frequent words.
    """

    distinct: float
    imbalance: float
    diversity: float
    similarity: float
    information: float

    @property
    def total(self) -> float:
        """The difficulty; a data set that is hard to learn has some 4 or more."""
        return self.distinct + self.imbalance + self.diversity + self.similarity + self.information


def difficulty(rows: Iterable[tuple[str, str]]) -> Difficulty:
    """Return the difficulty of texts with their classes.

    The authors' code computes the Hellinger distance over the words of the first class alone, and
    its value depends on the order of the classes; here it is the distance.

    Args:
        rows: texts, each with the name of its class; at least two classes.

    >>> found = difficulty([("a good day", "yes"), ("a bad day", "no")])
    >>> round(found.diversity, 3), found.imbalance, round(found.distinct, 3)
    (0.693, 0.0, 0.667)
    """
    words: dict[str, Counter[str]] = {}
    labels: Counter[str] = Counter()
    for text, label in rows:
        labels[label] += 1
        words.setdefault(label, Counter()).update(re.findall(r"\w+", text.lower()))
    if len(labels) < 2:
        raise ValueError(f"rows: expected two classes or more, found {len(labels)}")
    everything: Counter[str] = sum(words.values(), Counter())
    shares = [count / labels.total() for count in labels.values()]
    return Difficulty(
        len(everything) / max(1, everything.total()),
        sum(abs(1 / len(labels) - share) for share in shares),
        -sum(share * log(share) for share in shares),
        1 - min(hellinger(one, other) for one, other in combinations(words.values(), 2)),
        _information([_frequent(of_class) for of_class in words.values()]),
    )


def task_difficulty(task: Task) -> Difficulty | None:
    """Return the difficulty of a task's training rows; None if they are no texts with a class."""
    if not isinstance(task.kind, Classify):
        return None
    rows = (row for row in task.split("train").rows() if isinstance(row, TextRow))
    pairs = [(f"{row.text} {row.pair or ''}", str(row.label)) for row in rows]
    return difficulty(pairs) if pairs else None


def hellinger(one: Words, other: Words) -> float:
    """Return the Hellinger distance of two distributions of words, given by counts."""
    first, second = max(1, sum(one.values())), max(1, sum(other.values()))
    gaps = (
        (sqrt(one.get(word, 0) / first) - sqrt(other.get(word, 0) / second)) ** 2
        for word in one.keys() | other.keys()
    )
    return sqrt(sum(gaps) / 2)


def _frequent(words: Counter[str]) -> dict[str, int]:
    """Return the most frequent words of a class, stop words left out."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    kept = {word: count for word, count in words.items() if word not in ENGLISH_STOP_WORDS}
    ranked = sorted(kept.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:TOP])


def _information(classes: list[dict[str, int]]) -> float:
    """Return the mean over pairs of classes; a class with itself counts with its entropy."""
    table = [[_shared(one, other, one is other) for other in classes] for one in classes]
    return sum(map(sum, table)) / len(classes) ** 2


def _shared(one: Words, other: Words, same: bool) -> float:
    first, second = sum(one.values()), sum(other.values())
    if same:
        return -sum(n / first * log(n / first) for n in one.values())
    total = 0.0
    for word in sorted(one.keys() & other.keys()):
        both = (one[word] + other[word]) / (first + second)
        total += both * (log(both) - log(one[word] / first) - log(other[word] / second))
    return total
