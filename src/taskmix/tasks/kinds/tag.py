"""Tagging: one class a word."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.kinds.base import IGNORE_INDEX, Array, Columns, Scored
from taskmix.tasks.kinds.texts import LabelledKind, cut, numbers_of, only, reader
from taskmix.tasks.rows import Row, WordsRow
from taskmix.tasks.shapes import ColumnMap, Shape, Words

if TYPE_CHECKING:
    from tokenizers import Encoding
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer


@dataclass(frozen=True)
class Tag(LabelledKind):
    """One of several tags for each word of a sentence.

    A word's tag is predicted at its first sub-word. Words that the model never sees, because the
    sentence is cut or the tokenizer drops them, get the most frequent tag and are scored as well.
    """

    name = "tag"
    reads = "tokens"
    mean_over = "decisions"
    pads: ClassVar[Mapping[str, int]] = {"tags": IGNORE_INDEX}
    held = frozenset({"words", "tagged"})
    targets = frozenset({"tags"})
    metrics = (m.ENTITY_F1, m.TAG_ACCURACY)
    usual = ("entity_f1",)
    frequent: str = ""  # the most frequent tag of the training split, by `fit`

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        return Words(columns.text, columns.label)

    def usual_metrics(self) -> tuple[str, ...]:
        return self.usual if m.marks_entities(self.labels) else ("accuracy",)

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
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
        tags = np.full(len(begun), IGNORE_INDEX, dtype=np.int16)
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
        tags = train.ragged["tags"]
        counts = np.bincount(tags[tags >= 0], minlength=len(self.labels))
        if np.count_nonzero(counts) < 2:
            raise UserError("the training split has fewer than two different tags")
        return replace(self, frequent=self.labels[int(counts.argmax())])

    def unlabelled(self, split: "Encoded") -> NDArray[np.bool_]:
        return np.asarray(split.dense["tagged"] == 0)

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        from torch.nn.functional import cross_entropy

        tags = batch["tags"].flatten()
        total = cross_entropy(logits.float().flatten(0, 1), tags, reduction="sum")
        return total / (tags >= 0).sum().clamp(min=1)

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        return logits[batch["tags"] >= 0].float().softmax(-1)

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        return (batch["tags"] >= 0).nonzero()[:, 0]

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        return list(logits.argmax(-1).cpu().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        sentences = list(rows)
        return Scored(self.answers(raw, split, iter(sentences)), _expected(sentences))

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
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
        usual = self.fit(train).frequent
        expected = _expected(rows)
        return Scored([[usual] * len(tags) for tags in expected], expected)

    def columns_spec(self) -> dict[str, Any]:
        return {"kind": self.path(), "labels": list(self.labels)}


def _expected(rows: Iterable[Row]) -> list[list[str]]:
    return [list(row.tags or ()) for row in rows if isinstance(row, WordsRow)]


def _begun(encoding: "Encoding") -> NDArray[np.int32]:
    """Return the number of the word that each token begins; -1 for all other tokens."""
    words = np.array([-1 if word is None else word for word in encoding.word_ids], dtype=np.int32)
    words[1:][words[1:] == words[:-1]] = -1
    return words
