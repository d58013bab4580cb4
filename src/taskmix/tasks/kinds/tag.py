"""One class a word."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.kinds.base import Array, Columns, Kind, Scored
from taskmix.tasks.kinds.texts import cut, different, found_labels, numbers_of, only, reader
from taskmix.tasks.rows import Row, Source, WordsRow
from taskmix.tasks.shapes import Shape, Words

if TYPE_CHECKING:
    from tokenizers import Encoding
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer

NONE = -100


@dataclass(frozen=True)
class Tag(Kind):
    """One of several tags for each word of a sentence.

    A word's tag is asked at its first sub-word; the others bear none. Words that the model never
    sees, because the sentence is too long or its tokenizer knows nothing of them, get the most
    frequent tag and are scored like all others.

    Args:
        labels: the names of the tags.
        frequent: the most frequent tag of the training split; `fit` finds it.

    >>> Tag(("O", "B-loc", "I-loc")).width
    3
    """

    name = "tag"
    reads = "tokens"
    mean_over = "decisions"
    pads: ClassVar[Mapping[str, int]] = {"tags": NONE}
    held = frozenset({"words", "tagged"})
    targets = frozenset({"tags"})
    metrics = (m.ENTITY_F1, m.TAG_ACCURACY)
    usual = ("entity_f1",)
    labels: tuple[str, ...]
    frequent: str = ""

    def __post_init__(self) -> None:
        different(self.labels)

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        """Return words with a tag each."""
        return Words(columns.text, columns.label)

    @classmethod
    def for_task(cls, labels: tuple[str, ...] | None, train: Source) -> Self:
        """Make the kind with these tags, or those of the training rows."""
        return cls(labels or found_labels(train))

    def usual_metrics(self) -> tuple[str, ...]:
        """Return entity F1, or accuracy where tags do not say where entities begin."""
        return self.usual if m.marks_entities(self.labels) else ("accuracy",)

    @property
    def width(self) -> int:
        """A logit for each tag."""
        return len(self.labels)

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Token ids, each token's tag, and the number of the word that it begins."""
        sentences = only(rows, WordsRow, where)
        tokens = reader(tokenizer, where)
        encodings = tokens.encode_words([row.words for row in sentences])
        words = [_begun(encoding) for encoding in encodings]
        tags = [self._tags(row, begun, where) for row, begun in zip(sentences, words, strict=True)]
        ids: list[Array] = [np.array(encoding.ids) for encoding in encodings]
        return Columns(
            dense={
                "tagged": np.array([row.tags is not None for row in sentences], dtype=np.int8),
                "cut": cut(encodings, tokens),
            },
            ragged={"input_ids": ids, "tags": tags, "words": words},
        )

    def _tags(self, row: WordsRow, begun: NDArray[np.int32], where: str) -> NDArray[np.int16]:
        tags = np.full(len(begun), NONE, dtype=np.int16)
        if row.tags is None:
            return tags
        if len(row.tags) != len(row.words):
            raise UserError(
                f"{where}, row {row.at}: expected a tag for each of {len(row.words)} words, "
                f"found {len(row.tags)}"
            )
        numbers = np.array(numbers_of(row.tags, self.labels, "tag", row, where), dtype=np.int16)
        tags[begun >= 0] = numbers[begun[begun >= 0]]
        return tags

    def fit(self, train: "Encoded") -> Self:
        """Finds the most frequent tag; two must be there."""
        tags = train.ragged["tags"]
        counts = np.bincount(tags[tags >= 0], minlength=len(self.labels))
        if np.count_nonzero(counts) < 2:
            raise UserError("the training split has fewer than two different tags")
        return replace(self, frequent=self.labels[int(counts.argmax())])

    def unlabelled(self, split: "Encoded") -> NDArray[np.bool_]:
        """Sentences whose tags are not published."""
        return np.asarray(split.dense["tagged"] == 0)

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Cross-entropy, the mean over words; 0 where there is no word."""
        from torch.nn.functional import cross_entropy

        tags = batch["tags"].flatten()
        total = cross_entropy(logits.float().flatten(0, 1), tags, reduction="sum")
        return total / (tags >= 0).sum().clamp(min=1)

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Softmax for every tagged word of the batch, shape `(words, tags)`."""
        return logits[batch["tags"] >= 0].float().softmax(-1)

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return each word is a decision."""
        return (batch["tags"] >= 0).nonzero()[:, 0]

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        """Return the most likely tag of every token, as numbers."""
        return list(logits.argmax(-1).cpu().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Tag names, a list for each sentence, beside those of all its words."""
        sentences = list(rows)
        return Scored(self.answers(raw, split, iter(sentences)), _expected(sentences))

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Tag names, a list for each sentence."""
        begun = split.ragged["words"]
        bounds = zip(split.offsets[:-1], split.offsets[1:], strict=True)
        return [
            self._names(tags, begun[start:end], row)
            for tags, (start, end), row in zip(raw, bounds, rows, strict=True)
            if isinstance(row, WordsRow)
        ]

    def _names(self, tags: NDArray[np.int64], begun: Array, row: WordsRow) -> list[str]:
        names = [self.frequent or self.labels[0]] * len(row.words)
        for word, tag in zip(begun.tolist(), tags[: len(begun)].tolist(), strict=True):
            if word >= 0:
                names[word] = self.labels[tag]
        return names

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Return the most frequent tag of the training split for every word."""
        usual = self.fit(train).frequent
        expected = _expected(rows)
        return Scored([[usual] * len(tags) for tags in expected], expected)

    def columns_spec(self) -> dict[str, Any]:
        """Name and labels."""
        return {"kind": self.path(), "labels": list(self.labels)}


def _expected(rows: Iterable[Row]) -> list[list[str]]:
    return [list(row.tags or ()) for row in rows if isinstance(row, WordsRow)]


def _begun(encoding: "Encoding") -> NDArray[np.int32]:
    """For each token the number of the word that it begins; -1 for all other tokens."""
    words = np.array([-1 if word is None else word for word in encoding.word_ids], dtype=np.int32)
    words[1:][words[1:] == words[:-1]] = -1
    return words
