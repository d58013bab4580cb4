"""Any number of classes a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.kinds.base import Columns, Kind, Scored
from taskmix.tasks.kinds.texts import different, encode_texts, found_labels, numbers_of, only
from taskmix.tasks.rows import Row, Source, TextRow
from taskmix.tasks.shapes import Shape, Texts

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer

UNLABELLED = -1


@dataclass(frozen=True)
class MultiLabel(Kind):
    """Any of several classes, none or all, for a text or a pair of texts.

    Each class is a yes or no of its own, and the loss is the mean negative log-likelihood of these
    decisions: log 2 for a model that knows nothing, however many classes there are.

    Args:
        labels: the names of the classes.

    >>> MultiLabel(("joy", "anger", "fear")).width
    3
    """

    name = "multilabel"
    metrics = (m.MULTILABEL_F1,)
    usual = ("micro_f1",)
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        different(self.labels, least=1)

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        """Return texts with several classes."""
        texts = Texts(columns.text, columns.pair, columns.label, holds="names", id=columns.id)
        return replace(texts, separator=columns.separator)

    @classmethod
    def for_task(cls, labels: tuple[str, ...] | None, train: Source) -> Self:
        """Make the kind with these classes, or those of the training rows."""
        return cls(labels or found_labels(train, least=1))

    @property
    def width(self) -> int:
        """A logit for each class."""
        return len(self.labels)

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Token ids, and for each class whether it applies."""
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
        """Nothing to learn, but two rows must differ."""
        labels = train.dense["labels"]
        if (labels == labels[0]).all():
            raise UserError("every row of the training split has the same labels")
        return self

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Binary cross-entropy, the mean over items and classes."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        known = batch["labels"] >= 0
        return binary_cross_entropy_with_logits(
            logits.float()[known], batch["labels"][known].float()
        )

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """No and yes for each class of each item, shape `(items * classes, 2)`."""
        import torch

        yes = logits.float().flatten()
        return torch.stack([-yes, yes], dim=-1).sigmoid()

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return each item has a decision for every class."""
        return super().owners(batch).repeat_interleave(len(self.labels))

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        """Return the probability of each class."""
        return list(logits.float().sigmoid().cpu().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Sets of class names."""
        return self._beside(self.answers(raw, split, rows), split)

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Return the names of all classes that are more likely than not."""
        return [self._names(p > 0.5) for p in raw]

    def probabilities(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Return the probability of each class by its name; they do not sum to 1."""
        return [dict(zip(self.labels, p.tolist(), strict=True)) for p in raw]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Return the classes that apply to more than half of the training split."""
        usual = self._names(train.dense["labels"].mean(axis=0) > 0.5)
        return self._beside([usual] * len(split), split)

    def _beside(self, predicted: list[tuple[str, ...]], split: "Encoded") -> Scored:
        return Scored(predicted, [self._names(row > 0) for row in split.dense["labels"]])

    def _names(self, applies: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(self.labels[number] for number in np.flatnonzero(applies))
