"""How a cell of a table becomes a label, several labels, answers or a number."""

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taskmix.tasks.readers.record import FileRecord, brief
from taskmix.tasks.rows import Answer

SEPARATORS = ("|", ";", ",")
"""What may stand between the labels of one text: the first that a file has, or else spaces."""


def label_of(record: FileRecord, column: str, expected: str, *, optional: bool) -> Any:
    """Return the value of a label's column; where it is missing, None if it may be, or else raise.

    Missing are: null, a number that is none, an empty text, and a column that the record lacks
    although no header names it.
    """
    if optional and column not in record.values and column not in record.columns:
        return None
    value = record[column]
    if not _missing(value):
        return value
    if optional:
        return None
    raise record.error(f"column {column!r} holds {brief(value)}, expected {expected}")


def _missing(value: Any) -> bool:
    match value:
        case None:
            return True
        case str():
            return not value.strip()
        case float():
            return math.isnan(value)
    return False


def answers(record: FileRecord, found: Any, context: str) -> Iterator[Answer]:
    """Yield the answers of a cell, in whichever of the forms of `shapes.Questions` it has them."""
    if isinstance(found, Mapping) and not isinstance(found.get("text"), str):
        found = _paired(record, FileRecord(record.where, record.at, found))
    for each in found if isinstance(found, (list, tuple)) else [found]:
        yield from _answer(record, each, context)


def accepted(record: FileRecord, found: Any) -> tuple[str, ...] | None:
    """Return the texts that count as right, where a cell names them beside those in the context."""
    if not isinstance(found, Mapping) or found.get("accepted") is None:
        return None
    return tuple(texts(FileRecord(record.where, record.at, found), "accepted"))


def _paired(record: FileRecord, inner: FileRecord) -> list[tuple[Any, Any]]:
    texts, starts = inner.list("text"), inner.list("answer_start")
    if len(texts) != len(starts):
        raise record.error(f"{len(texts)} answers, but {len(starts)} places")
    return list(zip(texts, starts, strict=True))


def _answer(record: FileRecord, value: Any, context: str) -> Iterator[Answer]:
    match value:
        case str(text) if text:
            places = [found.start() for found in re.finditer(re.escape(text), context)]
            if not places:
                raise record.error(f"answer {brief(text)} does not stand in the context")
            yield from (Answer(text, place) for place in places)
        case [str(text), start] | {"text": str(text), "answer_start": start}:
            yield _placed(record, text, start, context)
        case _:
            raise record.error(
                f"answer {brief(value)}: expected a text, or a text and its answer_start"
            )


def _placed(record: FileRecord, text: str, start: Any, context: str) -> Answer:
    """An answer at its place; where it is not there, the sentence says what is, and where it is."""
    place = _whole_number(start)
    if place is None:
        raise record.error(
            f"answer {brief(text)}: answer_start is {brief(start)}, expected a whole number from 0"
        )
    if context.startswith(text, place):
        return Answer(text, place)
    places = (found.start() for found in re.finditer(re.escape(text), context))
    nearest = min(places, key=lambda each: abs(each - place), default=None)
    there = "nowhere in the context" if nearest is None else f"at {nearest}"
    raise record.error(
        f"answer {brief(text)} does not stand at answer_start {place}: found "
        f"{brief(context[place : place + len(text)])} there; it stands {there}"
    )


def _whole_number(value: Any) -> int | None:
    """Return a number from 0, also as text or as a float without a fraction; None if it is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value)
    return (
        int(text) if not isinstance(value, bool) and text.isdecimal() and len(text) < 20 else None
    )


def name(record: FileRecord, column: str, value: Any, names: tuple[str, ...] | None = None) -> str:
    """Return a label as a class's name; JSON's truth values are called true and false."""
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
    """Return how a submission names a row."""
    return str(record.values.get(column, "")) if column else ""


def number(record: FileRecord, column: str, value: Any) -> float:
    """Return a label as a finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if math.isfinite(found):
        return found
    raise record.error(f"column {column!r} holds {brief(value)}, expected a number")


def position(record: FileRecord, column: str, choices: int) -> int:
    """Return a label as the position of a choice."""
    value = record[column]
    place = _whole_number(value)
    if place is not None and place < choices:
        return place
    raise record.error(f"column {column!r} holds {brief(value)}, expected 0 to {choices - 1}")


def texts(record: FileRecord, column: str) -> Iterator[str]:
    """Yield the values of a column that must be a list of texts."""
    for value in record.list(column):
        if not isinstance(value, str):
            raise record.error(f"column {column!r} holds {brief(value)} in its list, not a text")
        yield value


def several(record: FileRecord, column: str, value: Any, separator: str | None) -> Iterable[Any]:
    """The labels of a cell: a list, a text that holds a list, or names with a separator between."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            return _list_in(record, column, value)
        separator = separator or separator_of([value])
        names = value.split(None if separator == " " else separator)
        return [each.strip() for each in names if each.strip()]
    return value if isinstance(value, (list, tuple)) else [value]


def _list_in(record: FileRecord, column: str, text: str) -> list[Any]:
    """Return the list that a text holds as JSON, or as Python (and so pandas) writes it."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, list):
            return value
    raise record.error(f"column {column!r} holds {brief(text)}, expected a list of labels")


def separator_of(values: Iterable[Any]) -> str:
    """What stands between labels: the first of `SEPARATORS` that a text has, or else spaces."""
    found: set[str] = set()
    for value in values:
        if isinstance(value, str) and not value.lstrip().startswith("["):
            found.update(each for each in SEPARATORS if each in value)
            if SEPARATORS[0] in found:
                break
    return next((each for each in SEPARATORS if each in found), " ")
