"""Multiple choice: one of several texts a row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.kinds.base import IGNORE_INDEX, Columns, Kind, Scored
from taskmix.tasks.kinds.texts import cut, only, reader, seconds
from taskmix.tasks.rows import ChoiceRow, Row
from taskmix.tasks.shapes import Choices, ColumnMap, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer


@dataclass(frozen=True)
class Choose(Kind):
    """The right one of several continuations, whose number may differ from row to row.

    The model has one logit for each choice, encoded as a pair with the text that all share, and a
    softmax over the choices of a row. Rows whose choices have names (ReCoRD) are scored by these.
    """

    name = "choose"
    metrics = (m.ACCURACY,)
    usual = ("accuracy",)

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        if not columns.choices:
            raise UserError("a choose task needs `choices`, the columns of the choices.")
        return Choices(columns.text, columns.choices, columns.label, columns.id)

    @property
    def width(self) -> int:
        return 1

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        questions = only(rows, ChoiceRow, where)
        labels = np.array([_label(row, where) for row in questions], dtype=np.int64)
        pairs = [(row.text, choice) for row in questions for choice in row.choices]
        words = reader(tokenizer, where)
        encodings = words.encode(*zip(*pairs, strict=True))
        counts = [len(row.choices) for row in questions]
        starts = np.cumsum([0, *counts[:-1]])
        return Columns(
            dense={"labels": labels, "cut": np.logical_or.reduceat(cut(encodings, words), starts)},
            ragged={"input_ids": [np.array(encoding.ids) for encoding in encodings]},
            per_sequence={"second": seconds(encodings)},
            sequences=counts,
        )

    def fit(self, train: "Encoded") -> Self:
        if train.sequences is None or np.diff(train.sequences).max() < 2:
            raise UserError("no row of the training split has two choices")
        return self

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        from torch.nn.functional import cross_entropy

        return cross_entropy(_by_item(logits, batch), batch["labels"])

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        return _by_item(logits, batch).softmax(-1)

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        return list(self.distribution(logits, batch).cpu().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        return _score_choices([int(np.argmax(p)) for p in raw], rows)

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        return list(self.scored(raw, split, rows).predicted)

    def probabilities(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        assert split.sequences is not None
        counts = np.diff(split.sequences).tolist()
        return [p[:count].tolist() for p, count in zip(raw, counts, strict=True)]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        most = int(np.bincount(train.dense["labels"]).argmax())
        assert split.sequences is not None
        return _score_choices(np.minimum(most, np.diff(split.sequences) - 1).tolist(), rows)


def _label(row: ChoiceRow, where: str) -> int:
    if not row.choices:
        raise UserError(f"{where}, row {row.at}: expected at least one choice, found none")
    if row.label is None:
        return IGNORE_INDEX
    if not 0 <= row.label < len(row.choices):
        raise UserError(
            f"{where}, row {row.at}: expected a label from 0 to {len(row.choices) - 1}, "
            f"found {row.label}"
        )
    return row.label


def _by_item(logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
    """Reshape logits `(sequences, 1)` to `(items, choices)`, padded with minus infinity."""
    import torch

    item = batch["item"]
    counts = torch.bincount(item, minlength=len(batch["labels"]))
    place = torch.arange(len(item), device=item.device) - (counts.cumsum(0) - counts)[item]
    table = logits.new_full((len(counts), int(counts.max())), -torch.inf, dtype=torch.float32)
    return table.index_put((item, place), logits.float().squeeze(-1))


def _score_choices(places: Sequence[int], rows: Iterable[Row]) -> Scored:
    predicted: list[int | str] = []
    expected: list[int | tuple[str, ...] | None] = []
    for place, row in zip(places, rows, strict=True):
        if not isinstance(row, ChoiceRow):
            raise TypeError(f"expected a ChoiceRow, found a {type(row).__name__}")
        predicted.append(row.names[place] if row.names else place)
        expected.append(row.answers if row.names else row.label)
    return Scored(predicted, expected)
