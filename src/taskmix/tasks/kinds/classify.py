"""Classification: one class a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.files import number_of
from taskmix.tasks import metrics as m
from taskmix.tasks.kinds.base import IGNORE_INDEX, Array, Columns, Scored
from taskmix.tasks.kinds.texts import LabelledKind, encode_texts, numbers_of, only
from taskmix.tasks.rows import ImageRow, Row, TextRow
from taskmix.tasks.shapes import ColumnMap, Shape, Texts

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer


@dataclass(frozen=True)
class Classify(LabelledKind):
    """One of several classes, for a text, a pair of texts or an image.

    The second class is the positive one of a binary F1.
    """

    name = "classify"
    held = frozenset({"group"})
    targets = frozenset({"labels", "marks"})
    metrics = (m.ACCURACY, m.F1, m.MACRO_F1, m.MATTHEWS)
    usual = ("accuracy",)
    marks: int = 0  # marked pieces of each row, whose vectors are added to the pooled one

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.marks < 0:
            raise UserError(f"marks: expected at least 0, found {self.marks}")

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        return Texts(columns.text, columns.pair, columns.label, id=columns.id)

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        dense: dict[str, Array] = {"labels": self._labels(rows, where)}
        if isinstance(rows[0], ImageRow):
            dense["pixels"] = np.stack([row.pixels for row in only(rows, ImageRow, where)])
            return Columns(dense)
        texts = only(rows, TextRow, where)
        if any(row.group for row in texts):
            dense["group"] = np.array([number_of(row.group) for row in texts], dtype=np.int64)
        return encode_texts(texts, tokenizer, where, dense, self.marks)

    def _labels(self, rows: Sequence[Row], where: str) -> NDArray[np.int64]:
        numbers_of_rows = np.full(len(rows), IGNORE_INDEX, dtype=np.int64)
        for place, row in enumerate(rows):
            label = getattr(row, "label", None)
            if label is not None:
                [numbers_of_rows[place]] = numbers_of([label], self.labels, "label", row, where)
        return numbers_of_rows

    def fit(self, train: "Encoded") -> Self:
        classes = np.unique(train.dense["labels"])
        if len(classes) < 2:
            only = self.labels[classes[0]] if classes[0] >= 0 else "none at all"
            raise UserError(f"the training split has one class only ({only}), expected two or more")
        return self

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits.float(), batch["labels"])

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        return logits.float().softmax(-1)

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        return list(self.distribution(logits, batch).cpu().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        return self._score_classes([int(np.argmax(p)) for p in raw], split)

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        return [self.labels[int(np.argmax(p))] for p in raw]

    def probabilities(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        return [dict(zip(self.labels, p.tolist(), strict=True)) for p in raw]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        most = int(np.bincount(train.dense["labels"]).argmax())
        return self._score_classes([most] * len(split), split)

    def _score_classes(self, predicted: list[int], split: "Encoded") -> Scored:
        groups = split.dense.get("group")
        expected = split.dense["labels"].tolist()
        return Scored(predicted, expected, None if groups is None else groups.tolist())
