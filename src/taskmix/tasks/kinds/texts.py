"""Texts and pairs of texts as columns, shared by the kinds that read texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks.kinds.base import Array, Columns
from taskmix.tasks.remembered import remembered
from taskmix.tasks.rows import Mark, Row, Source, TextRow, WordsRow

if TYPE_CHECKING:
    from tokenizers import Encoding

    from taskmix.tasks.tokenizer import Tokenizer


RowT = TypeVar("RowT", bound=Row)


def only(rows: Sequence[Row], form: type[RowT], where: str) -> list[RowT]:
    """Return the rows, all of which have to be of this form."""
    for row in rows:
        if not isinstance(row, form):
            raise UserError(
                f"{where}, row {row.at}: expected a {form.__name__}, found a {type(row).__name__}"
            )
    return list(rows)  # type: ignore[arg-type]


def different(labels: Sequence[str], least: int = 2) -> None:
    """Complain unless these are so many different names, or more."""
    if len(labels) < least or len(set(labels)) != len(labels):
        raise UserError(f"labels: expected {least} or more different names, found {list(labels)}")


def found_labels(train: Source, least: int = 2) -> tuple[str, ...]:
    """Return the labels of the training rows, numbers by size and names by alphabet."""
    labels = remembered(
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
    """Return the tokenizer, which texts cannot do without."""
    if tokenizer is None:
        raise UserError(f"{where}: these are texts, but the model reads images")
    return tokenizer


def numbers_of(
    names: Sequence[str], labels: Sequence[str], what: str, row: Row, where: str
) -> list[int]:
    """Return the places of these names among the labels; a complaint calls one `what`."""
    for name in names:
        if name not in labels:
            raise UserError(
                f"{where}, row {row.at}: {what} {name!r} is not one of: {', '.join(labels)}"
            )
    return [labels.index(name) for name in names]


def encode_texts(
    rows: Sequence[TextRow],
    tokenizer: "Tokenizer | None",
    where: str,
    dense: dict[str, Array],
    marks: int = 0,
) -> Columns:
    """Token ids, where the second text starts, and where the marked pieces stand."""
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
    """Return which sequences are not whole: the tokenizer cut them at its longest."""
    longest = tokenizer.max_length
    return np.array([len(each.ids) == longest and bool(each.overflowing) for each in encodings])


def seconds(encodings: Sequence["Encoding"]) -> NDArray[np.int32]:
    """Return where the second text starts in each sequence; 0 where there is none."""
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
    """First and last-but-one token of each marked piece, shape `(rows, marks, 2)`."""
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
