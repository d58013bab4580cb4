"""Regression: a number a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.cells import finite
from taskmix.tasks.kinds.base import Columns, Kind, Scored
from taskmix.tasks.kinds.texts import encode_texts, only
from taskmix.tasks.readers.base import brief
from taskmix.tasks.rows import Row, TextRow
from taskmix.tasks.shapes import ColumnMap, Shape, Texts

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer

MAX_LABEL = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Regress(Kind):
    """A number, for a text or a pair of texts.

    The model predicts the standardised label z = (y - m) / s under a Gaussian of unit variance. The
    loss is that Gaussian's negative log-likelihood above the best possible one, (ẑ - z)² / 2: 0 for
    a perfect prediction and 1/2 for the mean, comparable with log 2 of a binary classification,
    whatever the label's unit.
    """

    name = "regress"
    metrics = (m.PEARSON, m.SPEARMAN)
    usual = ("pearson", "spearman")
    mean: float = 0.0  # of the training labels, by `fit`
    scale: float = 1.0  # their standard deviation

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        return Texts(columns.text, columns.pair, columns.label, holds="number", id=columns.id)

    @property
    def width(self) -> int:
        return 1

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        texts = only(rows, TextRow, where)
        return encode_texts(texts, tokenizer, where, {"labels": _numbers(texts, where)})

    def fit(self, train: "Encoded") -> Self:
        labels = np.asarray(train.dense["labels"], dtype=np.float64)
        scale = float(labels.std())
        if not scale > 0:
            raise UserError("the training split has one value only, expected two or more")
        return replace(self, mean=float(labels.mean()), scale=scale)

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        target = (batch["labels"] - self.mean) / self.scale
        return 0.5 * (logits.float().squeeze(-1) - target).square().mean()

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        return logits.float()

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        numbers = logits.float().squeeze(-1) * self.scale + self.mean
        return list(numbers.cpu().double().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        return Scored(self.answers(raw, split, rows), split.dense["labels"].tolist())

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        return [float(number) for number in raw]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        mean = float(np.mean(train.dense["labels"]))
        return Scored([mean] * len(split), split.dense["labels"].tolist())

    def columns_spec(self) -> dict[str, Any]:
        return {"kind": self.path()}


def _numbers(rows: Sequence[TextRow], where: str) -> NDArray[np.float32]:
    numbers = np.full(len(rows), np.nan, dtype=np.float32)
    for place, row in enumerate(rows):
        if row.label is None:
            continue
        number = finite(row.label)
        if not abs(number) <= MAX_LABEL:
            found = brief(row.label)
            raise UserError(f"{where}, row {row.at}: expected a finite number, found {found}")
        numbers[place] = number
    return numbers
