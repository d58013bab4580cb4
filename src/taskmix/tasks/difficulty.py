"""The difficulty of text classification, by statistics of the data alone."""

import re
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

Words = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The five statistics of Collins, Rozanov and Zhang (2018); their sum is the difficulty."""

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
        words.setdefault(label, Counter()).update(re.findall(r"\w+", text.lower()))
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


def task_difficulty(task: Task) -> Difficulty | None:
    """Return the difficulty of a task's training rows; None if it does not classify texts."""
    if not isinstance(task.kind, Classify):
        return None
    rows = (row for row in task.split("train").rows() if isinstance(row, TextRow))
    pairs = [(f"{row.text} {row.pair or ''}", str(row.label)) for row in rows]
    return difficulty(pairs) if pairs else None


def hellinger(one: Words, other: Words) -> float:
    """Return the Hellinger distance of two distributions of words, given by counts."""
    # The authors' code sums over the words of the first class only, which is no distance.
    first, second = max(1, sum(one.values())), max(1, sum(other.values()))
    gaps = (
        (sqrt(one.get(word, 0) / first) - sqrt(other.get(word, 0) / second)) ** 2
        for word in one.keys() | other.keys()
    )
    return sqrt(sum(gaps) / 2)


def _frequent(words: Counter[str]) -> dict[str, int]:
    """Return the most frequent words of a class without stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    kept = {word: count for word, count in words.items() if word not in ENGLISH_STOP_WORDS}
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
