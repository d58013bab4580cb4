"""Readers of JSON lines, of MRQA 2019 and of SQuAD 1.1 and 2.0."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.tasks.readers.base import FileRecord, brief
from taskmix.tasks.readers.lines import contents, lines


@dataclass(frozen=True)
class Jsonl:
    """Reads one JSON mapping a line, and skips blank lines."""

    def records(self, path: Path) -> Iterator[FileRecord]:
        for at, line in lines(path):
            if line.strip():
                yield FileRecord(str(path), at, mapping(line, f"{path}, row {at}"))


def mapping(text: str, place: str) -> dict[str, Any]:
    """Parse a JSON mapping; errors name the place."""
    try:
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()  # fails if a surrogate is unpaired
    except UnicodeEncodeError:
        raise UserError(f"{place}: half a surrogate pair, which no UTF-8 text has.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise UserError(f"{place}: expected a JSON mapping, found {brief(value)}.")
    return value


@dataclass(frozen=True)
class Mrqa:
    """Reads MRQA jsonl into one record a question: `id`, `question`, `context`, `answers`.

    `answers` maps `text` and `answer_start` to the spans that were detected in the context, for
    training, and `accepted` to the texts that the official script accepts.
    """

    def records(self, path: Path) -> Iterator[FileRecord]:
        for line in Jsonl().records(path):
            if "header" not in line.values:
                context = line.text("context")
                for question in line.inners("qas"):
                    yield _question(question, "qid", context, _mrqa_answers(question, context))


def _question(question: FileRecord, name: str, context: Any, answers: Any) -> FileRecord:
    values = {
        "id": question[name],
        "question": question["question"],
        "context": context,
        "answers": answers,
    }
    return FileRecord(question.where, question.at, values)


def _mrqa_answers(question: FileRecord, context: str) -> dict[str, list[Any]] | None:
    if "detected_answers" not in question.values:
        return None
    spans = [
        _bounds(answer, span, len(context))
        for answer in question.inners("detected_answers")
        for span in answer.list("char_spans")
    ]
    texts = [context[start : last + 1] for start, last in spans]
    accepted = list(question.list("answers")) if "answers" in question.values else texts
    return {"text": texts, "answer_start": [start for start, _ in spans], "accepted": accepted}


def _bounds(answer: FileRecord, span: object, length: int) -> tuple[int, int]:
    match span:
        case [int(start), int(last)] if 0 <= start <= last < length:
            return start, last
    raise answer.error(
        f"char_spans holds {brief(span)}, expected a first and a last character of {length}"
    )


@dataclass(frozen=True)
class Squad:
    """Reads SQuAD JSON into one record a question: `id`, `question`, `context`, `answers`.

    The whole file is held in memory while it is read (SQuAD itself: 30 MB).
    """

    def records(self, path: Path) -> Iterator[FileRecord]:
        document = FileRecord(str(path), 1, mapping(_text(path), str(path)))
        number = count(1)
        for article in document.inners("data"):
            for paragraph in article.inners("paragraphs"):
                for question in paragraph.inners("qas"):
                    yield _squad_question(question, paragraph, next(number))


def _text(path: Path) -> str:
    try:
        return contents(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, row {row}: not UTF-8, found {error.reason}.") from None


def _squad_question(question: FileRecord, paragraph: FileRecord, number: int) -> FileRecord:
    question = FileRecord(question.where, number, question.values)  # errors name the question
    answers = None
    if "answers" in question.values:
        inners = question.inners("answers")
        answers = [(answer["text"], answer["answer_start"]) for answer in inners]
    return _question(question, "id", paragraph["context"], answers)
