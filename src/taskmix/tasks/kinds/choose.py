"""One of several texts a row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.kinds.base import Columns, Kind, Scored
from taskmix.tasks.kinds.texts import cut, only, reader, seconds
from taskmix.tasks.rows import ChoiceRow, Row
from taskmix.tasks.shapes import Choices, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer

UNLABELLED = -100


@dataclass(frozen=True)
class Choose(Kind):
    """The right one of several ways to go on, of which each row may have another number.

    The model gives each choice, read as a pair with what all share, one number; the choice is a
    softmax over those of a row. Rows whose choices stand for names (ReCoRD) are scored by these.

    >>> Choose().width
    1
    """

    name = "choose"
    metrics = (m.ACCURACY,)
    usual = ("accuracy",)

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        """Return texts with several ways to go on."""
        if not columns.choices:
            raise UserError("a choose task needs `choices`, the columns of the choices.")
        return Choices(columns.text, columns.choices, columns.label, columns.id)

    @property
    def width(self) -> int:
        """A number for each choice."""
        return 1

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Token ids of every choice, and the place of the right one."""
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
        """Nothing to learn, but somewhere there must be a choice."""
        if train.sequences is None or np.diff(train.sequences).max() < 2:
            raise UserError("no row of the training split has two choices")
        return self

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Cross-entropy over the choices of each item."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(_by_item(logits, batch), batch["labels"])

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Softmax over the choices of each item, shape `(items, most choices of an item)`."""
        return _by_item(logits, batch).softmax(-1)

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        """Return the probabilities of each item's choices, and zeros after them."""
        return list(self.distribution(logits, batch).cpu().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Places of choices; of rows with names, the name beside all that count as right."""
        return _beside([int(np.argmax(p)) for p in raw], rows)

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Return the place of each choice, from 0, or its name where it has one."""
        return list(_beside([int(np.argmax(p)) for p in raw], rows).predicted)

    def probabilities(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Return the probability of each choice of a row, in their order."""
        assert split.sequences is not None
        counts = np.diff(split.sequences).tolist()
        return [p[:count].tolist() for p, count in zip(raw, counts, strict=True)]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Return the place that is most often right in the training split, or a row's last one."""
        most = int(np.bincount(train.dense["labels"]).argmax())
        assert split.sequences is not None
        return _beside(np.minimum(most, np.diff(split.sequences) - 1).tolist(), rows)


def _label(row: ChoiceRow, where: str) -> int:
    if not row.choices:
        raise UserError(f"{where}, row {row.at}: expected at least one choice, found none")
    if row.label is None:
        return UNLABELLED
    if not 0 <= row.label < len(row.choices):
        raise UserError(
            f"{where}, row {row.at}: expected a label from 0 to {len(row.choices) - 1}, "
            f"found {row.label}"
        )
    return row.label


def _by_item(logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
    """Logits `(sequences, 1)` as `(items, most choices)`, minus infinity where there is none."""
    import torch

    item = batch["item"]
    counts = torch.bincount(item, minlength=len(batch["labels"]))
    place = torch.arange(len(item), device=item.device) - (counts.cumsum(0) - counts)[item]
    table = logits.new_full((len(counts), int(counts.max())), -torch.inf, dtype=torch.float32)
    return table.index_put((item, place), logits.float().squeeze(-1))


def _beside(places: Sequence[int], rows: Iterable[Row]) -> Scored:
    predicted: list[int | str] = []
    expected: list[int | tuple[str, ...] | None] = []
    for place, row in zip(places, rows, strict=True):
        if not isinstance(row, ChoiceRow):
            raise TypeError(f"expected a ChoiceRow, found a {type(row).__name__}")
        predicted.append(row.names[place] if row.names else place)
        expected.append(row.answers if row.names else row.label)
    return Scored(predicted, expected)
