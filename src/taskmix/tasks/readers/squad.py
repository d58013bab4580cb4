"""SQuAD v1.1 and v2.0 JSON: articles, paragraphs, questions, answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.tasks.readers.jsonl import mapping
from taskmix.tasks.readers.lines import contents
from taskmix.tasks.readers.record import FileRecord


@dataclass(frozen=True)
class Squad:
    """Reads SQuAD JSON into one record a question: `id`, `question`, `context`, `answers`.

    An answer is a pair of its text and its first character. JSON cannot be read piece by piece:
    the file is held in memory while it is read (SQuAD itself: 30 MB). A record's place is the
    number of its question.
    """

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Yield the records of a file in order."""
        document = FileRecord(str(path), 1, mapping(_text(path), str(path)))
        number = count(1)
        for article in document.inners("data"):
            for paragraph in article.inners("paragraphs"):
                for question in paragraph.inners("qas"):
                    yield _question(question, paragraph, next(number))


def _text(path: Path) -> str:
    try:
        return contents(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, row {row}: not UTF-8, found {error.reason}.") from None


def _question(question: FileRecord, paragraph: FileRecord, number: int) -> FileRecord:
    here = FileRecord(question.where, number, {**question.values, "context": paragraph["context"]})
    return FileRecord(
        here.where,
        number,
        {
            "id": here["id"],
            "question": here["question"],
            "context": here["context"],
            "answers": _answers(here),
        },
    )


def _answers(question: FileRecord) -> list[tuple[Any, Any]] | None:
    if "answers" not in question.values:
        return None
    return [(answer["text"], answer["answer_start"]) for answer in question.inners("answers")]
