"""What a reader yields: one row of a data set, of the form that its kind of task needs.

`at` is the row's place in its file, counted from 1, so that every complaint can name it. A label is
None where it is hidden, as in test sets.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked piece of a text: `text[start:end]`, in the second text if `second`."""

    start: int
    end: int
    second: bool = False


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text or a pair of texts, with a class, several classes, or a number.

    Args:
        at: the row's place in its file.
        text: the text.
        pair: the second text of a pair.
        label: a class's name, the names of all that apply, or a number.
        marks: marked pieces of the texts, all rows having equally many (WiC, WSC).
        group: rows that are scored together share it (MultiRC: the answers to a question).
        id: how a submission file names the row.
        passage: rows that are about one text share it, and are held out together.
    """

    at: int
    text: str
    pair: str | None = None
    label: str | float | tuple[str, ...] | None = None
    marks: tuple[Mark, ...] = ()
    group: str = ""
    id: str = ""
    passage: str = ""


@dataclass(frozen=True, slots=True)
class WordsRow:
    """A sentence in words, with a tag for each."""

    at: int
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it stands in a context: `context[start:start + len(text)]`."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question and the context that holds its answer; no answers means that it has none.

    Args:
        at: the row's place in its file.
        question: the question.
        context: the text that it is about.
        answers: where the answers stand in the context; None where they are hidden.
        id: how a submission file names the row.
        accepted: the texts that count as right, where they are others than those that stand in the
            context (MRQA).
    """

    at: int
    question: str
    context: str
    answers: tuple[Answer, ...] | None = None
    id: str = ""
    accepted: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A text and several ways to go on, one of which is right (or, in ReCoRD, any of some).

    Args:
        at: the row's place in its file.
        text: what all choices share.
        choices: the ways to go on, at least one.
        label: index of the right choice.
        answers: texts that count as right, where a benchmark scores texts (ReCoRD).
        id: how a submission file names the row.
        names: the text that each choice stands for, where it is scored by text (ReCoRD).
    """

    at: int
    text: str
    choices: tuple[str, ...]
    label: int | None = None
    answers: tuple[str, ...] = ()
    id: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A text to go on from, and what it goes on with.

    Args:
        at: the row's place in its file.
        prompt: what is given; empty where the whole of a text is to be learned.
        answer: what is to be said after it; None where that is not known.
        id: how predictions name the row.
    """

    at: int
    prompt: str
    answer: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class ImageRow:
    """A picture of bytes, shape `(height, width)`, with a class."""

    at: int
    pixels: NDArray[np.uint8]
    label: str | None = None


Row = TextRow | WordsRow | QuestionRow | ChoiceRow | PromptRow | ImageRow


class Source(Protocol):
    """Where the rows of one split come from; reading it twice gives the same rows."""

    @property
    def where(self) -> str:
        """What a complaint calls it: the file, or the data set's name and split."""

    def rows(self) -> Iterator[Row]:
        """Return the rows in order, read as they are asked for."""

    def skips(self) -> Mapping[str, int]:
        """By documented rule, how many records it passes over."""

    def fingerprint(self) -> str:
        """Names the content and the way it is read; another content has another name."""
