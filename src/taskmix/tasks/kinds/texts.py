"""Encoding texts and pairs of texts, for the kinds that read texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError, did_you_mean
from taskmix.tasks.kinds.base import Array, Columns, Kind, cached_fact
from taskmix.tasks.rows import Mark, Row, Source, TextRow, WordsRow

if TYPE_CHECKING:
    from tokenizers import Encoding

    from taskmix.tasks.tokenizer import Tokenizer


RowT = TypeVar("RowT", bound=Row)


@dataclass(frozen=True)
class LabelledKind(Kind):
    """A kind with named classes: those of the task, or else those of the training rows."""

    min_labels: ClassVar[int] = 2
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.labels) < self.min_labels or len(set(self.labels)) != len(self.labels):
            raise UserError(
                f"labels: expected {self.min_labels} or more different names, "
                f"found {list(self.labels)}"
            )

    @classmethod
    def for_task(cls, labels: tuple[str, ...] | None, train: Source) -> Self:
        return cls(labels or _labels_in(train, cls.min_labels))

    @property
    def width(self) -> int:
        return len(self.labels)


def only(rows: Sequence[Row], form: type[RowT], where: str) -> list[RowT]:
    """Return the rows; raise unless all are of this type."""
    for row in rows:
        if not isinstance(row, form):
            raise UserError(
                f"{where}, row {row.at}: expected a {form.__name__}, found a {type(row).__name__}"
            )
    return list(rows)  # type: ignore[arg-type]


def _labels_in(train: Source, least: int) -> tuple[str, ...]:
    """Return the labels of the training rows, numbers by size and names by alphabet."""
    labels = cached_fact(
        "labels",
        train,
        lambda: sorted({label for row in train.rows() for label in _labels_of(row)}),
    )
    if len(labels) < least:
        raise UserError(f"{train.where} has the labels {labels}, expected two or more.")
    numeric = all(label.removeprefix("-").isdecimal() for label in labels)
    return tuple(sorted(labels, key=int) if numeric else labels)


def _labels_of(row: Row) -> tuple[str, ...]:
    match row:
        case TextRow(label=str(label)):
            return (label,)
        case TextRow(label=tuple(labels)) | WordsRow(tags=tuple(labels)):
            return labels
    return ()


def reader(tokenizer: "Tokenizer | None", where: str) -> "Tokenizer":
    """Return the tokenizer; raise if there is none."""
    if tokenizer is None:
        raise UserError(f"{where}: these are texts, but the model reads images")
    return tokenizer


def numbers_of(
    names: Sequence[str], labels: Sequence[str], what: str, row: Row, where: str
) -> list[int]:
    """Return the indices of these names among the labels; an error calls one `what`."""
    for name in names:
        if name not in labels:
            raise UserError(
                f"{where}, row {row.at}: {what} {name!r} is not one of: {', '.join(labels)}"
                f"{did_you_mean(name, labels)}"
            )
    return [labels.index(name) for name in names]


def encode_texts(
    rows: Sequence[TextRow],
    tokenizer: "Tokenizer | None",
    where: str,
    dense: dict[str, Array],
    marks: int = 0,
) -> Columns:
    """Return token ids, the start of the second text, and the token spans of marked pieces."""
    words = reader(tokenizer, where)
    encodings = words.encode(
        [row.text for row in rows], [row.pair for row in rows], offsets=marks > 0
    )
    dense = dense | {"cut": cut(encodings, words)}
    if marks:
        dense = dense | {"marks": _marks(rows, encodings, marks, where)}
    return Columns(
        dense,
        ragged={"input_ids": [np.array(encoding.ids) for encoding in encodings]},
        per_sequence={"second": seconds(encodings)},
    )


def cut(encodings: Sequence["Encoding"], tokenizer: "Tokenizer") -> NDArray[np.bool_]:
    """Return a mask of the sequences that the tokenizer cut at its maximum length."""
    longest = tokenizer.max_length
    return np.array([len(e.ids) == longest and bool(e.overflowing) for e in encodings])


def seconds(encodings: Sequence["Encoding"]) -> NDArray[np.int32]:
    """Return the start of the second text in each sequence; 0 where there is none."""
    return np.array([_second(encoding) for encoding in encodings], dtype=np.int32)


def _second(encoding: "Encoding") -> int:
    """Return the first token of the second segment or, without segments, of the second text."""
    types = encoding.type_ids
    if 1 in types:
        return types.index(1)
    texts = encoding.sequence_ids
    return texts.index(1) if 1 in texts else 0


def _marks(
    rows: Sequence[TextRow], encodings: Sequence["Encoding"], marks: int, where: str
) -> NDArray[np.int32]:
    """Return the token span of each marked piece, shape `(rows, marks, 2)`."""
    places = np.zeros((len(rows), marks, 2), dtype=np.int32)
    for place, row, encoding in zip(places, rows, encodings, strict=True):
        if len(row.marks) != marks:
            raise UserError(
                f"{where}, row {row.at}: expected {marks} marked pieces, found {len(row.marks)}"
            )
        place[:] = [_tokens_of(mark, encoding) for mark in row.marks]
    return places


def _tokens_of(mark: Mark, encoding: "Encoding") -> tuple[int, int]:
    inside = [
        token
        for token, ((start, end), sequence) in enumerate(
            zip(encoding.offsets, encoding.sequence_ids, strict=True)
        )
        if sequence == int(mark.second) and start < mark.end and end > mark.start
    ]
    # A piece that was cut off with the end of its text is read at the first token instead.
    return (inside[0], inside[-1] + 1) if inside else (0, 1)
