"""Rows of data sets, and the sources that they come from."""

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
    """A text or a pair of texts, with a class, several classes, or a number."""

    at: int  # here and below: the row's number in its file, from 1
    text: str
    pair: str | None = None
    label: str | float | tuple[str, ...] | None = None  # None if it is hidden, as in test sets
    marks: tuple[Mark, ...] = ()  # as many in every row (WiC, WSC)
    group: str = ""  # rows of one group are scored together (MultiRC: the answers to a question)
    id: str = ""  # here and below: the row's name in submission files
    passage: str = ""  # rows about one text share it, and are held out together


@dataclass(frozen=True, slots=True)
class WordsRow:
    """A sentence in words, with a tag for each."""

    at: int
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in its context: `text == context[start:start + len(text)]`."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question about a context."""

    at: int
    question: str
    context: str
    answers: tuple[Answer, ...] | None = None  # None if hidden; empty if there is no answer
    id: str = ""
    accepted: tuple[str, ...] | None = None  # the right texts, if not those of `answers` (MRQA)


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A text and several continuations, one of which is right (in ReCoRD: one or more)."""

    at: int
    text: str
    choices: tuple[str, ...]  # at least one
    label: int | None = None  # index of the right choice
    answers: tuple[str, ...] = ()  # the right names (ReCoRD)
    id: str = ""
    names: tuple[str, ...] = ()  # the name of each choice, if names are scored (ReCoRD)


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt and its answer."""

    at: int
    prompt: str  # empty if `answer` is a text that is learned as a whole
    answer: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class ImageRow:
    """An image with a class."""

    at: int
    pixels: NDArray[np.uint8]  # (height, width)
    label: str | None = None


Row = TextRow | WordsRow | QuestionRow | ChoiceRow | PromptRow | ImageRow


class Source(Protocol):
    """The rows of one split, which are the same each time they are read."""

    @property
    def where(self) -> str:
        """The source's name in errors: the file, or the data set and split."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows in order."""

    def skips(self) -> Mapping[str, int]:
        """Return the number of records that each documented rule skips."""

    def fingerprint(self) -> str:
        """Return a hash of the content and of the reading options."""
