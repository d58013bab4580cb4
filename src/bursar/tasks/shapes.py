"""How records become rows: which column is which."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bursar.tasks.readers.record import Record, brief
from bursar.tasks.rows import Answer, ChoiceRow, QuestionRow, Row, TextRow, WordsRow

NO_LABEL = -1
"""What the hub writes where a class is not known."""


@dataclass(frozen=True, slots=True)
class Skip:
    """A record that a documented rule passes over; it is counted, never dropped in silence."""

    rule: str


class Shape(Protocol):
    """Makes rows of records; a frozen dataclass, whose repr says how it does so."""

    @property
    def skips(self) -> bool:
        """Whether a rule of this shape passes over records."""

    def rows(self, record: Record) -> Iterator[Row | Skip]:
        """The rows that a record holds, mostly one."""

    def without_labels(self) -> "Shape":
        """The same shape for a split whose labels are not published."""


@dataclass(frozen=True)
class Texts:
    """A text or a pair of texts, with a class, several classes, or a number.

    Args:
        text: column of the text.
        pair: column of the second text.
        label: column of the label; None where labels are hidden.
        holds: what the label column holds: a class's name, a number, or several names.
        id: column by which submissions name the row, where it is there.
        unlabelled: a label that marks a row without one; such rows are skipped and counted.
        broken: whether rows with too few columns are skipped and counted (the official QQP file
            has questions with line breaks in them, which nobody can put together again).
        names: what labels that are positions in a list are called (hub data sets); the hub's -1
            is a hidden label.
        aliases: other words that a distribution has for a class, each with the class's name.
    """

    text: str
    pair: str | None = None
    label: str | None = None
    holds: Literal["name", "number", "names"] = "name"
    id: str | None = None
    unlabelled: str | int | None = None
    broken: bool = False
    names: tuple[str, ...] | None = None
    aliases: tuple[tuple[str, str], ...] = ()

    @property
    def skips(self) -> bool:
        """Whether a rule of this shape passes over records."""
        return self.broken or self.unlabelled is not None

    def without_labels(self) -> "Texts":
        """The same shape for a split whose labels are not published."""
        return Texts(self.text, self.pair, id=self.id)

    def rows(self, record: Record) -> Iterator[TextRow | Skip]:
        """The row that a record holds."""
        if self.broken and len(record.values) < len(record.columns):
            yield Skip("too few columns")
        elif self.label and self.unlabelled is not None and record[self.label] == self.unlabelled:
            yield Skip(f"label {self.unlabelled!r}")
        else:
            yield self._row(record)

    def _row(self, record: Record) -> TextRow:
        return TextRow(
            at=record.at,
            text=record.text(self.text),
            pair=record.text(self.pair) if self.pair else None,
            label=self._label(record, self.label) if self.label else None,
            id=identity(record, self.id),
        )

    def _label(self, record: Record, column: str) -> str | float | tuple[str, ...] | None:
        value = record[column]
        if self.holds == "number":
            return number(record, column, value)
        if self.holds == "names":
            return tuple(name(record, column, each, self.names) for each in _each(value))
        if self.names and value == NO_LABEL:
            return None
        found = name(record, column, value, self.names)
        return dict(self.aliases).get(found, found)


@dataclass(frozen=True)
class Words:
    """A sentence in words with a tag for each.

    Args:
        words: column of the list of words.
        tags: column of the list of tags; None where they are hidden.
        names: what tags that are positions in a list are called (hub data sets).
    """

    words: str = "words"
    tags: str | None = "tags"
    names: tuple[str, ...] | None = None
    skips = False

    def without_labels(self) -> "Words":
        """The same shape for a split whose tags are not published."""
        return Words(self.words, None)

    def rows(self, record: Record) -> Iterator[WordsRow]:
        """The row that a record holds."""
        words = tuple(_texts(record, self.words))
        tags = self._tags(record, self.tags, len(words)) if self.tags else None
        yield WordsRow(record.at, words, tags)

    def _tags(self, record: Record, column: str, expected: int) -> tuple[str, ...]:
        tags = tuple(name(record, column, tag, self.names) for tag in record.list(column))
        if len(tags) != expected:
            raise record.error(f"{len(tags)} tags for {expected} words")
        return tags


@dataclass(frozen=True)
class Questions:
    """A question, its context and its answers, each a pair of text and first character.

    Args:
        question: column of the question.
        context: column of the context.
        answers: column of the answers: a list of pairs, or of mappings with `text` and
            `answer_start`, or the hub's mapping of two lists; None where they are hidden.
        id: column by which submissions name the row, where it is there.
    """

    question: str = "question"
    context: str = "context"
    answers: str | None = "answers"
    id: str | None = "id"
    skips = False

    def without_labels(self) -> "Questions":
        """The same shape for a split whose answers are not published."""
        return Questions(self.question, self.context, None, self.id)

    def rows(self, record: Record) -> Iterator[QuestionRow]:
        """The row that a record holds."""
        context = record.text(self.context)
        yield QuestionRow(
            at=record.at,
            question=record.text(self.question),
            context=context,
            answers=self._answers(record, context),
            id=identity(record, self.id),
        )

    def _answers(self, record: Record, context: str) -> tuple[Answer, ...] | None:
        found = record[self.answers] if self.answers else None
        if found is None:
            return None
        if isinstance(found, Mapping):
            found = _paired(record, record.nest(found, str(self.answers)))
        several = found if isinstance(found, (list, tuple)) else [found]
        return tuple(_answer(record, each, context) for each in several)


@dataclass(frozen=True)
class Choices:
    """A text and several ways to go on.

    Args:
        text: column of what all choices share.
        choices: columns of the choices, or the one column that holds a list of them.
        label: column of the right choice's position, from 0; None where it is hidden.
        id: column by which submissions name the row, where it is there.
    """

    text: str
    choices: tuple[str, ...]
    label: str | None = "label"
    id: str | None = None
    skips = False

    def without_labels(self) -> "Choices":
        """The same shape for a split whose labels are not published."""
        return Choices(self.text, self.choices, None, self.id)

    def rows(self, record: Record) -> Iterator[ChoiceRow]:
        """The row that a record holds."""
        choices = tuple(self._choices(record))
        yield ChoiceRow(
            at=record.at,
            text=record.text(self.text),
            choices=choices,
            label=position(record, self.label, len(choices)) if self.label else None,
            id=identity(record, self.id),
        )

    def _choices(self, record: Record) -> Iterator[str]:
        if len(self.choices) == 1:
            yield from _texts(record, self.choices[0])
        else:
            yield from (record.text(column) for column in self.choices)


def _paired(record: Record, inner: Record) -> list[tuple[Any, Any]]:
    texts, starts = inner.list("text"), inner.list("answer_start")
    if len(texts) != len(starts):
        raise record.error(f"{len(texts)} answers, but {len(starts)} places")
    return list(zip(texts, starts, strict=True))


def _answer(record: Record, value: Any, context: str) -> Answer:
    match value:
        case [str(text), int(start)] | {"text": str(text), "answer_start": int(start)}:
            if start >= 0 and context.startswith(text, start):
                return Answer(text, start)
    raise record.error(f"answer {brief(value)} does not stand there in the context")


def name(record: Record, column: str, value: Any, names: tuple[str, ...] | None = None) -> str:
    """A label as a class's name; JSON's truth values are called true and false."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if names is not None and isinstance(value, int):
        if 0 <= value < len(names):
            return names[value]
        raise record.error(f"column {column!r} holds {value}, expected 0 to {len(names) - 1}")
    if isinstance(value, (str, int)):
        return str(value)
    raise record.error(f"column {column!r} holds {brief(value)}, expected a label")


def identity(record: Record, column: str | None) -> str:
    """How a submission names a row."""
    return str(record.values.get(column, "")) if column else ""


def number(record: Record, column: str, value: Any) -> float:
    """A label as a finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if math.isfinite(found):
        return found
    raise record.error(f"column {column!r} holds {brief(value)}, expected a number")


def position(record: Record, column: str, choices: int) -> int:
    """A label as the position of a choice."""
    value = record[column]
    text = str(value)
    if not isinstance(value, bool) and text.isdecimal() and int(text) < choices:
        return int(text)
    raise record.error(f"column {column!r} holds {brief(value)}, expected 0 to {choices - 1}")


def _texts(record: Record, column: str) -> Iterator[str]:
    for value in record.list(column):
        if not isinstance(value, str):
            raise record.error(f"column {column!r} holds {brief(value)} in its list, not a text")
        yield value


def _each(value: Any) -> Iterator[Any]:
    """The labels of a cell: a list as it is, a text split at its spaces or commas."""
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    yield from value if isinstance(value, (list, tuple)) else [value]
