"""Conversion of table cells to labels, answers and numbers."""

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taskmix.tasks.readers.base import FileRecord, brief
from taskmix.tasks.rows import Answer

SEPARATORS = ("|", ";", ",")
"""Separators of several labels; the first that a file has is its separator, spaces if none."""


def label_of(record: FileRecord, column: str, expected: str, *, optional: bool) -> Any:
    """Return the value of a label column; a missing one is None if `optional`, or else raises."""
    if optional and column not in record.values and column not in record.columns:
        return None
    value = record[column]
    missing = is_missing(value)
    if missing and not optional:
        raise record.error(f"column {column!r} holds {brief(value)}, expected {expected}")
    return None if missing else value


def is_missing(value: Any) -> bool:
    """Return whether the cell of a label is empty, null or NaN."""
    match value:
        case None:
            return True
        case str():
            return not value.strip()
        case float():
            return math.isnan(value)
    return False


def answers(record: FileRecord, cell: Any, context: str) -> Iterator[Answer]:
    """Yield the answers of a cell, which has one of the forms of `shapes.Questions`."""
    if isinstance(cell, Mapping) and not isinstance(cell.get("text"), str):
        inner = FileRecord(record.where, record.at, cell)
        texts, starts = inner.list("text"), inner.list("answer_start")
        if len(texts) != len(starts):
            raise record.error(f"{len(texts)} answers, but {len(starts)} places")
        cell = list(zip(texts, starts, strict=True))
    for answer in cell if isinstance(cell, (list, tuple)) else [cell]:
        yield from _answer(record, answer, context)


def accepted(record: FileRecord, cell: Any) -> tuple[str, ...] | None:
    """Return the texts that the cell accepts beside those in the context; None without any."""
    if not isinstance(cell, Mapping) or cell.get("accepted") is None:
        return None
    return tuple(texts(FileRecord(record.where, record.at, cell), "accepted"))


def _answer(record: FileRecord, value: Any, context: str) -> Iterator[Answer]:
    match value:
        case str(text) if text:
            starts = [match.start() for match in re.finditer(re.escape(text), context)]
            if not starts:
                raise record.error(f"answer {brief(text)} does not stand in the context")
            yield from (Answer(text, start) for start in starts)
        case [str(text), start] | {"text": str(text), "answer_start": start}:
            yield _placed(record, text, start, context)
        case _:
            raise record.error(
                f"answer {brief(value)}: expected a text, or a text and its answer_start"
            )


def _placed(record: FileRecord, text: str, start: Any, context: str) -> Answer:
    place = _whole_number(start)
    if place is None:
        raise record.error(
            f"answer {brief(text)}: answer_start is {brief(start)}, expected a whole number from 0"
        )
    if context.startswith(text, place):
        return Answer(text, place)
    starts = (match.start() for match in re.finditer(re.escape(text), context))
    nearest = min(starts, key=lambda start: abs(start - place), default=None)
    stands = "nowhere in the context" if nearest is None else f"at {nearest}"
    raise record.error(
        f"answer {brief(text)} does not stand at answer_start {place}: found "
        f"{brief(context[place : place + len(text)])} there; it stands {stands}"
    )


def _whole_number(value: Any) -> int | None:
    """Return a whole number from 0, which may be a text or a float; None if it is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 20 else None  # no bool is decimal


def name(record: FileRecord, column: str, value: Any, names: tuple[str, ...] | None = None) -> str:
    """Return the class name of a label; JSON's truth values become true and false."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if names is not None and isinstance(value, int):
        if 0 <= value < len(names):
            return names[value]
        raise record.error(f"column {column!r} holds {value}, expected 0 to {len(names) - 1}")
    if isinstance(value, float) and value.is_integer():  # pandas' integers beside missing ones
        value = int(value)
    if isinstance(value, (str, int)):
        return str(value)
    raise record.error(f"column {column!r} holds {brief(value)}, expected a label")


def identity(record: FileRecord, column: str | None) -> str:
    """Return the row's id in submissions."""
    return str(record.values.get(column, "")) if column else ""


def finite(value: Any) -> float:
    """Return a finite number, which may be a text; NaN if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # an integer of 400 digits overflows
        return math.nan
    return number if math.isfinite(number) else math.nan


def number(record: FileRecord, column: str, value: Any) -> float:
    label = finite(value)
    if not math.isnan(label):
        return label
    raise record.error(f"column {column!r} holds {brief(value)}, expected a number")


def position(record: FileRecord, column: str, choices: int) -> int:
    """Return the index of the right choice."""
    value = record[column]
    index = _whole_number(value)
    if index is not None and index < choices:
        return index
    raise record.error(f"column {column!r} holds {brief(value)}, expected 0 to {choices - 1}")


def texts(record: FileRecord, column: str) -> Iterator[str]:
    """Yield the texts of a column of lists of texts."""
    for value in record.list(column):
        if not isinstance(value, str):
            raise record.error(f"column {column!r} holds {brief(value)} in its list, not a text")
        yield value


def several(record: FileRecord, column: str, value: Any, separator: str | None) -> Iterable[Any]:
    """Return the labels of a cell: a list, a text that holds a list, or separated names."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            return _list_in(record, column, value)
        separator = separator or separator_of([value])
        names = value.split(None if separator == " " else separator)
        return [name.strip() for name in names if name.strip()]
    return value if isinstance(value, (list, tuple)) else [value]


def _list_in(record: FileRecord, column: str, text: str) -> list[Any]:
    """Parse a list in JSON, or in Python's syntax, which pandas writes."""
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, list):
            return value
    raise record.error(f"column {column!r} holds {brief(text)}, expected a list of labels")


def separator_of(values: Iterable[Any]) -> str:
    present: set[str] = set()
    for value in values:
        if isinstance(value, str) and not value.lstrip().startswith("["):
            present.update(separator for separator in SEPARATORS if separator in value)
            if SEPARATORS[0] in present:
                break
    return next((separator for separator in SEPARATORS if separator in present), " ")
