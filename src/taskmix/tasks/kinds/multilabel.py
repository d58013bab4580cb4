"""Multi-label classification: any number of classes a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.kinds.base import Columns, Scored
from taskmix.tasks.kinds.texts import LabelledKind, encode_texts, numbers_of, only
from taskmix.tasks.rows import Row, TextRow
from taskmix.tasks.shapes import ColumnMap, Shape, Texts

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer

UNLABELLED = -1


@dataclass(frozen=True)
class MultiLabel(LabelledKind):
    """Any of several classes, none or all, for a text or a pair of texts.

    Each class is a binary decision, and the loss is the mean negative log-likelihood of these
    decisions: log 2 for an uninformed model, whatever the number of classes.
    """

    name = "multilabel"
    metrics = (m.MULTILABEL_F1,)
    usual = ("micro_f1",)
    min_labels = 1

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        texts = Texts(columns.text, columns.pair, columns.label, holds="names", id=columns.id)
        return replace(texts, separator=columns.separator)

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        texts = only(rows, TextRow, where)
        return encode_texts(texts, tokenizer, where, {"labels": self._labels(texts, where)})

    def _labels(self, rows: Sequence[TextRow], where: str) -> NDArray[np.int8]:
        labels = np.zeros((len(rows), len(self.labels)), dtype=np.int8)
        for place, row in zip(labels, rows, strict=True):
            if row.label is None:
                place[:] = UNLABELLED
            elif isinstance(row.label, tuple):
                place[numbers_of(row.label, self.labels, "label", row, where)] = 1
            else:
                raise UserError(
                    f"{where}, row {row.at}: expected a list of labels, found {row.label!r}"
                )
        return labels

    def fit(self, train: "Encoded") -> Self:
        labels = train.dense["labels"]
        if (labels == labels[0]).all():
            raise UserError("every row of the training split has the same labels")
        return self

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        from torch.nn.functional import binary_cross_entropy_with_logits

        known = batch["labels"] >= 0
        return binary_cross_entropy_with_logits(
            logits.float()[known], batch["labels"][known].float()
        )

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        import torch

        yes = logits.float().flatten()
        return torch.stack([-yes, yes], dim=-1).sigmoid()

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        return super().owners(batch).repeat_interleave(len(self.labels))

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        return list(logits.float().sigmoid().cpu().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        return self._score_names(self.answers(raw, split, rows), split)

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        return [self._names(p > 0.5) for p in raw]

    def probabilities(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        return [dict(zip(self.labels, p.tolist(), strict=True)) for p in raw]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        usual = self._names(train.dense["labels"].mean(axis=0) > 0.5)
        return self._score_names([usual] * len(split), split)

    def _score_names(self, predicted: list[tuple[str, ...]], split: "Encoded") -> Scored:
        return Scored(predicted, [self._names(row > 0) for row in split.dense["labels"]])

    def _names(self, applies: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(self.labels[number] for number in np.flatnonzero(applies))
