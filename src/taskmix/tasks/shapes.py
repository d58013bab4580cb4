"""How records become rows: which column is which."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from taskmix.rng import stream
from taskmix.tasks import cells
from taskmix.tasks.readers.record import FileRecord
from taskmix.tasks.rows import ChoiceRow, PromptRow, QuestionRow, Row, TextRow, WordsRow

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

    def rows(self, record: FileRecord) -> Iterator[Row | Skip]:
        """Return the rows that a record holds, mostly one."""

    def without_labels(self) -> "Shape":
        """Return the same shape for a split whose labels are not published."""


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
        passage: column of the text that several rows are about; such rows are held out together.
        optional: whether a row may come without its label, as in a test split.
        separator: what stands between the labels of a text that holds several; None finds it in
            the file.
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
    passage: str | None = None
    optional: bool = False
    separator: str | None = None

    @property
    def skips(self) -> bool:
        """Whether a rule of this shape passes over records."""
        return self.broken or self.unlabelled is not None

    def without_labels(self) -> "Texts":
        """Return the same shape for a split whose labels are not published."""
        return Texts(self.text, self.pair, id=self.id)

    def rows(self, record: FileRecord) -> Iterator[TextRow | Skip]:
        """Yield the row that a record holds."""
        if self.broken and len(record.values) < len(record.columns):
            yield Skip("too few columns")
        elif self.label and self.unlabelled is not None and record[self.label] == self.unlabelled:
            yield Skip(f"label {self.unlabelled!r}")
        else:
            yield self._row(record)

    def settled(self, records: Iterable[FileRecord]) -> "Texts":
        """Return the shape that knows the separator of the labels in a file of these records."""
        if self.holds != "names" or self.label is None or self.separator is not None:
            return self
        labels = (record.values.get(self.label) for record in records)
        return replace(self, separator=cells.separator_of(labels))

    def _row(self, record: FileRecord) -> TextRow:
        return TextRow(
            at=record.at,
            text=record.text(self.text),
            pair=record.text(self.pair) if self.pair else None,
            label=self._label(record, self.label) if self.label else None,
            id=cells.identity(record, self.id),
            passage=record.text(self.passage) if self.passage else "",
        )

    def _label(self, record: FileRecord, column: str) -> str | float | tuple[str, ...] | None:
        if self.holds == "names":
            return self._names(record, column)
        what = "a number" if self.holds == "number" else "a label"
        value = cells.label_of(record, column, what, optional=self.optional)
        if value is None or (self.names and value == NO_LABEL):
            return None
        if self.holds == "number":
            return cells.number(record, column, value)
        found = cells.name(record, column, value, self.names)
        return dict(self.aliases).get(found, found)

    def _names(self, record: FileRecord, column: str) -> tuple[str, ...] | None:
        """Return the labels of a cell; an empty text is a row to which none applies."""
        value = record.values.get(column)
        if isinstance(value, str) and not value.strip():
            return ()
        value = cells.label_of(record, column, "a list of labels", optional=self.optional)
        if value is None:
            return None
        several = cells.several(record, column, value, self.separator)
        return tuple(cells.name(record, column, each, self.names) for each in several)


@dataclass(frozen=True)
class Words:
    """A sentence in words with a tag for each.

    Args:
        words: column of the list of words.
        tags: column of the list of tags; None where they are hidden.
        names: what tags that are positions in a list are called (hub data sets).
        optional: whether a row may come without its tags, as in a test split.
    """

    words: str = "words"
    tags: str | None = "tags"
    names: tuple[str, ...] | None = None
    optional: bool = False
    skips = False

    def without_labels(self) -> "Words":
        """Return the same shape for a split whose tags are not published."""
        return Words(self.words, None)

    def rows(self, record: FileRecord) -> Iterator[WordsRow]:
        """Yield the row that a record holds."""
        words = tuple(cells.texts(record, self.words))
        tags = self._tags(record, self.tags, len(words)) if self.tags else None
        yield WordsRow(record.at, words, tags)

    def _tags(self, record: FileRecord, column: str, expected: int) -> tuple[str, ...] | None:
        if cells.label_of(record, column, "a list of tags", optional=self.optional) is None:
            return None
        tags = tuple(cells.name(record, column, tag, self.names) for tag in record.list(column))
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
            `answer_start`, or the hub's mapping of two lists, in which a list `accepted` may name
            the texts that count as right, where they are others; a text without its place stands
            for all its places; None where answers are hidden.
        id: column by which submissions name the row, where it is there.
        optional: whether a row may come without answers, as in a test split.
    """

    question: str = "question"
    context: str = "context"
    answers: str | None = "answers"
    id: str | None = "id"
    optional: bool = False
    skips = False

    def without_labels(self) -> "Questions":
        """Return the same shape for a split whose answers are not published."""
        return Questions(self.question, self.context, None, self.id)

    def rows(self, record: FileRecord) -> Iterator[QuestionRow]:
        """Yield the row that a record holds."""
        context = record.text(self.context)
        found = None
        if self.answers:
            found = cells.label_of(record, self.answers, "answers", optional=self.optional)
        yield QuestionRow(
            at=record.at,
            question=record.text(self.question),
            context=context,
            answers=None if found is None else tuple(cells.answers(record, found, context)),
            id=cells.identity(record, self.id),
            accepted=cells.accepted(record, found),
        )


@dataclass(frozen=True)
class Choices:
    """A text and several ways to go on.

    Args:
        text: column of what all choices share.
        choices: columns of the choices, or the one column that holds a list of them.
        label: column of the right choice's position, from 0; None where it is hidden.
        id: column by which submissions name the row, where it is there.
        optional: whether a row may come without its label, as in a test split.
    """

    text: str
    choices: tuple[str, ...]
    label: str | None = "label"
    id: str | None = None
    optional: bool = False
    skips = False

    def without_labels(self) -> "Choices":
        """Return the same shape for a split whose labels are not published."""
        return Choices(self.text, self.choices, None, self.id)

    def rows(self, record: FileRecord) -> Iterator[ChoiceRow]:
        """Yield the row that a record holds."""
        choices = tuple(self._choices(record))
        yield ChoiceRow(
            at=record.at,
            text=record.text(self.text),
            choices=choices,
            label=self._place(record, self.label, len(choices)) if self.label else None,
            id=cells.identity(record, self.id),
        )

    def _place(self, record: FileRecord, column: str, choices: int) -> int | None:
        if cells.label_of(record, column, f"0 to {choices - 1}", optional=self.optional) is None:
            return None
        return cells.position(record, column, choices)

    def _choices(self, record: FileRecord) -> Iterator[str]:
        if len(self.choices) == 1:
            yield from cells.texts(record, self.choices[0])
        else:
            yield from (record.text(column) for column in self.choices)


@dataclass(frozen=True)
class Prompts:
    """A text to go on from and what it goes on with, or a text that is learned as a whole.

    Args:
        prompt: column of what is given; empty for texts that are learned as a whole.
        answer: column of what is to be said after it, or of the whole text; None where it is
            hidden.
        id: column by which predictions name the row, where it is there.
        optional: whether a row may come without its answer, as in a test split.
    """

    prompt: str
    answer: str | None
    id: str | None = None
    optional: bool = False
    skips = False

    def without_labels(self) -> "Prompts":
        """Return the same shape for prompts alone; a text is then what is to be gone on from."""
        return Prompts(self.prompt or self.answer or "", None, self.id)

    def rows(self, record: FileRecord) -> Iterator[PromptRow]:
        """Yield the row that a record holds."""
        prompt = record.text(self.prompt) if self.prompt else ""
        answer = None
        if self.answer:
            found = cells.label_of(record, self.answer, "a text", optional=self.optional)
            answer = None if found is None else cells.name(record, self.answer, found)
        yield PromptRow(record.at, prompt, answer, cells.identity(record, self.id))


@dataclass(frozen=True)
class Alone:
    """One text of each row of another shape, to be learned as a whole.

    Args:
        inner: gives rows of texts or of words.
        part: which text of a pair.
        shuffled: whether its words come in any order, the same one each time: noise that has the
            words of real texts.
        given: whether the text is to be gone on from instead.
    """

    inner: Shape
    part: Literal["text", "pair"] = "text"
    shuffled: bool = False
    given: bool = False
    skips = True

    def without_labels(self) -> "Alone":
        """Return the same shape for texts that are to be gone on from."""
        return replace(self, inner=self.inner.without_labels(), given=True)

    def rows(self, record: FileRecord) -> Iterator[PromptRow | Skip]:
        """Yield the texts that a record holds."""
        for row in self.inner.rows(record):
            yield row if isinstance(row, Skip) else self._alone(row)

    def _alone(self, row: Row) -> PromptRow | Skip:
        text = " ".join(row.words) if isinstance(row, WordsRow) else getattr(row, self.part)
        if not text.strip():
            return Skip("no text")
        if self.shuffled:
            words = text.split()
            text = " ".join(words[k] for k in stream(row.at, "words").permutation(len(words)))
        return PromptRow(row.at, text) if self.given else PromptRow(row.at, "", text)


def optional_labels(shape: Shape) -> Shape:
    """Return the same shape for a test split, in which a row may come without its label."""
    if isinstance(shape, (Texts, Words, Questions, Choices, Prompts)):
        return replace(shape, optional=True)
    return shape
