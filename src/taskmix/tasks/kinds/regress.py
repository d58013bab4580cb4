"""A number a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.kinds.base import Columns, Kind, Scored
from taskmix.tasks.kinds.texts import encode_texts, only
from taskmix.tasks.rows import Row, TextRow
from taskmix.tasks.shapes import Shape, Texts

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer


@dataclass(frozen=True)
class Regress(Kind):
    """A number, for a text or a pair of texts.

    The model predicts the label in units of its spread over the training split, z = (y - m) / s,
    under a Gaussian of unit variance. Its loss is that Gaussian's negative log-likelihood above
    the best possible one, (ẑ - z)² / 2: nothing for a perfect prediction and 1/2 for predicting
    the mean, which stands beside a classification's log 2 as an equal, whatever the label's unit.

    Args:
        mean: mean of the training labels; `fit` finds it.
        scale: their standard deviation.
    """

    name = "regress"
    metrics = (m.PEARSON, m.SPEARMAN)
    usual = ("pearson", "spearman")
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        """Return texts with a number."""
        return Texts(columns.text, columns.pair, columns.label, holds="number", id=columns.id)

    @property
    def width(self) -> int:
        """One number."""
        return 1

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Token ids, and labels in their own unit."""
        texts = only(rows, TextRow, where)
        return encode_texts(texts, tokenizer, where, {"labels": _numbers(texts, where)})

    def fit(self, train: "Encoded") -> Self:
        """Takes the unit from the training labels."""
        labels = np.asarray(train.dense["labels"], dtype=np.float64)
        scale = float(labels.std())
        if not scale > 0:
            raise UserError("the training split has one value only, expected two or more")
        return replace(self, mean=float(labels.mean()), scale=scale)

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Half the mean squared error in units of the label's spread."""
        target = (batch["labels"] - self.mean) / self.scale
        return 0.5 * (logits.float().squeeze(-1) - target).square().mean()

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return the mean of the predictive Gaussian, whose variance is 1."""
        return logits.float()

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        """Return the number, in the label's own unit."""
        numbers = logits.float().squeeze(-1) * self.scale + self.mean
        return list(numbers.cpu().double().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Numbers."""
        return Scored([float(number) for number in raw], split.dense["labels"].tolist())

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Numbers."""
        return [float(number) for number in raw]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Return the mean of the training split."""
        mean = float(np.mean(train.dense["labels"]))
        return Scored([mean] * len(split), split.dense["labels"].tolist())

    def columns_spec(self) -> dict[str, Any]:
        """Return the name alone: labels are kept in their own unit."""
        return {"kind": self.path()}


def _numbers(rows: Sequence[TextRow], where: str) -> NDArray[np.float32]:
    numbers = np.full(len(rows), np.nan, dtype=np.float32)
    for place, row in enumerate(rows):
        if row.label is None:
            continue
        try:
            numbers[place] = float(row.label)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise UserError(
                f"{where}, row {row.at}: expected a number as label, found {row.label!r}"
            ) from None
        if not np.isfinite(numbers[place]):
            raise UserError(
                f"{where}, row {row.at}: expected a finite number as label, found {row.label!r}"
            )
    return numbers
