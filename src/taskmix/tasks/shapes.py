"""Shapes: how the columns of a record become a row."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from taskmix.rng import stream
from taskmix.tasks import cells
from taskmix.tasks.readers.base import FileRecord
from taskmix.tasks.rows import ChoiceRow, PromptRow, QuestionRow, Row, TextRow, WordsRow

NO_LABEL = -1
"""The hub's value of an unknown class."""
Missing = Literal["error", "skip"]
"""What a row without a label is."""


@dataclass(frozen=True)
class ColumnMap:
    """The options of `from_files` that say how columns are read."""

    text: str = ""
    label: str = ""
    pair: str | None = None
    choices: tuple[str, ...] = ()
    separator: str | None = None
    id: str | None = None
    prompt: str = ""
    answer: str = ""
    missing: Missing = "error"


@dataclass(frozen=True, slots=True)
class Skip:
    """A record that a documented rule leaves out; it is counted."""

    rule: str


class Shape(Protocol):
    """Makes rows of records; a frozen dataclass, whose repr identifies the conversion."""

    @property
    def skips(self) -> bool:
        """Whether a rule of this shape passes over records."""

    def rows(self, record: FileRecord) -> Iterator[Row | Skip]:
        """Yield the rows of a record, mostly one."""

    def without_labels(self) -> "Shape":
        """Return the same shape for a split whose labels are not published."""


@dataclass(frozen=True)
class Texts:
    """A text or a pair of texts, with a class, several classes, or a number."""

    text: str  # here and below: the name of a column
    pair: str | None = None
    label: str | None = None  # None where labels are hidden
    holds: Literal["name", "number", "names"] = "name"  # the content of the label column
    id: str | None = None  # names the row in submissions
    unlabelled: str | int | None = None  # rows with this label are skipped and counted
    # Skip and count rows with too few columns: the official QQP file has questions with line breaks
    # in them, which cannot be restored.
    broken: bool = False
    names: tuple[str, ...] | None = None  # of labels that are indices (hub); -1 is hidden
    aliases: tuple[tuple[str, str], ...] = ()  # other names of a class in a distribution
    passage: str | None = None  # rows of one passage are held out together
    optional: bool = False  # a row may come without its label, as in a test split
    separator: str | None = None  # between several labels; None finds it in the file

    @property
    def skips(self) -> bool:
        return self.broken or self.unlabelled is not None

    def without_labels(self) -> "Texts":
        return Texts(self.text, self.pair, id=self.id)

    def rows(self, record: FileRecord) -> Iterator[TextRow | Skip]:
        if self.broken and len(record.values) < len(record.columns):
            yield Skip("too few columns")
        elif self.label and self.unlabelled is not None and record[self.label] == self.unlabelled:
            yield Skip(f"label {self.unlabelled!r}")
        else:
            yield self._row(record)

    def settled(self, records: Iterable[FileRecord]) -> "Texts":
        """Return the shape with the separator of the labels in these records."""
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
        advice = "; `missing: skip` leaves such rows out"
        value = cells.label_of(record, column, what + advice, optional=self.optional)
        if value is None or (self.names and value == NO_LABEL):
            return None
        if self.holds == "number":
            return cells.number(record, column, value)
        name = cells.name(record, column, value, self.names)
        return dict(self.aliases).get(name, name)

    def _names(self, record: FileRecord, column: str) -> tuple[str, ...] | None:
        """Return the labels of a cell; an empty text means none."""
        value = record.values.get(column)
        if isinstance(value, str) and not value.strip():
            return ()
        value = cells.label_of(record, column, "a list of labels", optional=self.optional)
        if value is None:
            return None
        labels = cells.several(record, column, value, self.separator)
        return tuple(cells.name(record, column, label, self.names) for label in labels)


@dataclass(frozen=True)
class LabelledTexts(Texts):
    """Texts with a class or a number; rows without it are skipped and counted."""

    skips = True

    def rows(self, record: FileRecord) -> Iterator[TextRow | Skip]:
        if self.label and not self.optional and cells.is_missing(record[self.label]):
            yield Skip("no label")
        else:
            yield from super().rows(record)


@dataclass(frozen=True)
class Words:
    """A sentence as a list of words with a tag for each."""

    words: str = "words"
    tags: str | None = "tags"
    names: tuple[str, ...] | None = None
    optional: bool = False
    skips = False

    def without_labels(self) -> "Words":
        return Words(self.words, None)

    def rows(self, record: FileRecord) -> Iterator[WordsRow]:
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

    Answers are a list of pairs, or of mappings with `text` and `answer_start`, or the hub's mapping
    of two lists, in which a list `accepted` may name other texts that count as right. A text
    without its place stands for all its places.
    """

    question: str = "question"
    context: str = "context"
    answers: str | None = "answers"
    id: str | None = "id"
    optional: bool = False
    skips = False

    def without_labels(self) -> "Questions":
        return Questions(self.question, self.context, None, self.id)

    def rows(self, record: FileRecord) -> Iterator[QuestionRow]:
        context = record.text(self.context)
        answers = None
        if self.answers:
            answers = cells.label_of(record, self.answers, "answers", optional=self.optional)
        yield QuestionRow(
            at=record.at,
            question=record.text(self.question),
            context=context,
            answers=None if answers is None else tuple(cells.answers(record, answers, context)),
            id=cells.identity(record, self.id),
            accepted=cells.accepted(record, answers),
        )


@dataclass(frozen=True)
class Choices:
    """A text and several choices of its continuation."""

    text: str
    choices: tuple[str, ...]  # one column each, or the one column that holds a list of them
    label: str | None = "label"  # index of the right choice, from 0
    id: str | None = None
    optional: bool = False
    skips = False

    def without_labels(self) -> "Choices":
        return Choices(self.text, self.choices, None, self.id)

    def rows(self, record: FileRecord) -> Iterator[ChoiceRow]:
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
    """A prompt with its answer, or a text that is learned as a whole (without a prompt)."""

    prompt: str
    answer: str | None
    id: str | None = None
    optional: bool = False
    skips = False

    def without_labels(self) -> "Prompts":
        """Return the same shape for prompts alone; a whole text becomes a prompt."""
        return Prompts(self.prompt or self.answer or "", None, self.id)

    def rows(self, record: FileRecord) -> Iterator[PromptRow]:
        prompt = record.text(self.prompt) if self.prompt else ""
        answer = None
        if self.answer:
            value = cells.label_of(record, self.answer, "a text", optional=self.optional)
            answer = None if value is None else cells.name(record, self.answer, value)
        yield PromptRow(record.at, prompt, answer, cells.identity(record, self.id))


@dataclass(frozen=True)
class Alone:
    """One text of each row of another shape, to be learned as a whole or, if `given`, a prompt."""

    inner: Shape
    part: Literal["text", "pair"] = "text"
    shuffled: bool = False  # permute its words, the same way each time: noise with real words
    given: bool = False
    skips = True

    def without_labels(self) -> "Alone":
        """Return the same shape for prompts."""
        return replace(self, inner=self.inner.without_labels(), given=True)

    def rows(self, record: FileRecord) -> Iterator[PromptRow | Skip]:
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
