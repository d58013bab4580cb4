"""The MRQA 2019 shared task's jsonl: a header line, then one context with its questions a line."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskmix.tasks.readers.jsonl import Jsonl
from taskmix.tasks.readers.record import FileRecord, brief


@dataclass(frozen=True)
class Mrqa:
    """Reads MRQA jsonl into one record a question: `id`, `question`, `context`, `answers`.

    `answers` maps `text` and `answer_start` to the texts that were detected in the context and
    their first characters, for training, and `accepted` to the texts that the official script
    scores against. The format's spans include their last character. A record stands at the line of
    its context.
    """

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Yield the records of a file in order, read as they are asked for."""
        for line in Jsonl().records(path):
            if "header" not in line.values:
                for question in line.inners("qas"):
                    yield _question(question, line.text("context"))


def _question(question: FileRecord, context: str) -> FileRecord:
    values = {
        "id": question["qid"],
        "question": question["question"],
        "context": context,
        "answers": _answers(question, context) if "detected_answers" in question.values else None,
    }
    return FileRecord(question.where, question.at, values)


def _answers(question: FileRecord, context: str) -> dict[str, list[Any]]:
    detected = list(_detected(question, context))
    texts = [text for text, _ in detected]
    accepted = list(question.list("answers")) if "answers" in question.values else texts
    starts = [start for _, start in detected]
    return {"text": texts, "answer_start": starts, "accepted": accepted}


def _detected(question: FileRecord, context: str) -> Iterator[tuple[str, int]]:
    for answer in question.inners("detected_answers"):
        for span in answer.list("char_spans"):
            start, last = _bounds(answer, span, len(context))
            yield context[start : last + 1], start


def _bounds(answer: FileRecord, span: object, length: int) -> tuple[int, int]:
    match span:
        case [int(start), int(last)] if 0 <= start <= last < length:
            return start, last
    raise answer.error(
        f"char_spans holds {brief(span)}, expected a first and a last character of {length}"
    )
