"""The eight tasks of SuperGLUE (Wang et al. 2019), from the files of super.gluebenchmark.com."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from taskmix.tasks.catalogue.entry import FilesEntry, Layout
from taskmix.tasks.cells import name, position
from taskmix.tasks.kinds import Choose, Classify, Kind
from taskmix.tasks.metrics import (
    ACCURACY,
    EXACT_GROUPS,
    EXACT_MATCH,
    F1_OVER_ANSWERS,
    MACRO_F1,
    TOKEN_F1,
    Metric,
)
from taskmix.tasks.readers import FileRecord, Jsonl
from taskmix.tasks.readers.base import brief
from taskmix.tasks.rows import ChoiceRow, Mark, TextRow
from taskmix.tasks.shapes import Shape, Skip, Texts

FILES = {"train": "train.jsonl", "dev": "val.jsonl", "test": "test.jsonl"}
TRUTH = ("false", "true")
QUESTIONS = {"cause": "What was the cause?", "effect": "What happened as a result?"}
GAP = "@placeholder"
HIGHLIGHT = "@highlight"


@dataclass(frozen=True)
class _Labelled:
    """The part that the shapes of SuperGLUE share."""

    labelled: bool = True

    @property
    def skips(self) -> bool:
        return False

    def without_labels(self) -> Self:
        return replace(self, labelled=False)


class Wic(_Labelled):
    """WiC: is a word used in the same sense in two sentences? The word is marked in both."""

    def rows(self, record: FileRecord) -> Iterator[TextRow]:
        yield TextRow(
            at=record.at,
            text=record.text("sentence1"),
            pair=record.text("sentence2"),
            label=name(record, "label", record["label"]) if self.labelled else None,
            marks=(_mark(record, "1"), _mark(record, "2")),
            id=str(record["idx"]),
        )


class Wsc(_Labelled):
    """WSC: does a pronoun stand for a noun? Both are marked in the text."""

    def rows(self, record: FileRecord) -> Iterator[TextRow]:
        text, target = record.text("text"), record.inner("target")
        yield TextRow(
            at=record.at,
            text=text,
            label=name(record, "label", record["label"]) if self.labelled else None,
            marks=tuple(_words(target, text, span) for span in ("span1", "span2")),
            id=str(record["idx"]),
            passage=text,
        )


class MultiRC(_Labelled):
    """MultiRC: is this answer to a question about a passage right? A row for each answer."""

    def rows(self, record: FileRecord) -> Iterator[TextRow]:
        passage = record.inner("passage")
        text = passage.text("text")
        for question in passage.inners("questions"):
            group = f"{record['idx']}/{question['idx']}"
            for answer in question.inners("answers"):
                yield TextRow(
                    at=record.at,
                    text=text,
                    pair=f"{question.text('question')} {answer.text('text')}",
                    label=name(answer, "label", answer["label"]) if self.labelled else None,
                    group=group,
                    id=f"{group}/{answer['idx']}",
                    passage=text,
                )


class Copa(_Labelled):
    """COPA: which of two sentences is the cause, or the effect, of a third?"""

    def rows(self, record: FileRecord) -> Iterator[ChoiceRow]:
        question = record.text("question")
        if question not in QUESTIONS:
            raise record.error(
                f"column 'question' holds {brief(question)}, expected cause or effect"
            )
        yield ChoiceRow(
            at=record.at,
            text=f"{record.text('premise')} {QUESTIONS[question]}",
            choices=(record.text("choice1"), record.text("choice2")),
            label=position(record, "label", 2) if self.labelled else None,
            id=str(record["idx"]),
        )


class ReCoRD(_Labelled):
    """ReCoRD: which entity of a passage fills the gap in a sentence? A row for each sentence.

    A sentence none of whose answers is an entity is skipped and counted.
    """

    @property
    def skips(self) -> bool:
        return self.labelled

    def rows(self, record: FileRecord) -> Iterator[ChoiceRow | Skip]:
        passage = record.inner("passage")
        text = passage.text("text")
        entities = [_entity(entity, text) for entity in passage.inners("entities")]
        names = tuple(dict.fromkeys(entities))
        if not names:
            raise record.error("a passage without entities, expected at least one")
        for query in record.inners("qas"):
            yield self._row(query, text, names)

    def _row(self, query: FileRecord, text: str, names: tuple[str, ...]) -> ChoiceRow | Skip:
        sentence = query.text("query")
        if GAP not in sentence:
            raise query.error(f"the query has no {GAP}")
        answers = query.inners("answers") if self.labelled else ()
        accepted = tuple(dict.fromkeys(answer.text("text") for answer in answers))
        right = [index for index, name in enumerate(names) if name in accepted]
        if self.labelled and not right:
            return Skip("no answer among the entities")
        return ChoiceRow(
            at=query.at,
            text=" ".join(text.replace(HIGHLIGHT, " ").split()),
            choices=tuple(sentence.replace(GAP, name) for name in names),
            label=right[0] if self.labelled else None,
            answers=accepted,
            id=str(query["idx"]),
            names=names,
        )


def _entity(entity: FileRecord, text: str) -> str:
    # The format's spans include their last character.
    start, last = _place(entity, "start"), _place(entity, "end")
    if not start <= last < len(text):
        raise entity.error(f"no entity {start} to {last} in a text of {len(text)} characters")
    return text[start : last + 1]


def _mark(record: FileRecord, which: str) -> Mark:
    text = record.text(f"sentence{which}")
    start, end = (_place(record, f"{edge}{which}") for edge in ("start", "end"))
    if not start < end <= len(text):
        raise record.error(f"no piece {start} to {end} in a text of {len(text)} characters")
    return Mark(start, end, second=which == "2")


def _words(target: FileRecord, text: str, span: str) -> Mark:
    quoted = target.text(f"{span}_text").split()
    words = list(re.finditer(r"\S+", text))
    place = _place(target, f"{span}_index")
    indexed = words[place : place + len(quoted)]
    if not indexed:
        raise target.error(f"{span} {brief(' '.join(quoted))} is not at word {place} of the text")
    start = indexed[0].start()
    # The words at the index may not be the quoted ones; then the nearest quoted ones are marked.
    pattern = re.compile(r"\s+".join(map(re.escape, quoted)), re.IGNORECASE)
    nearest = min(
        pattern.finditer(text), key=lambda match: abs(match.start() - start), default=None
    )
    return Mark(*nearest.span()) if nearest else Mark(start, indexed[-1].end())


def _place(record: FileRecord, column: str) -> int:
    value = str(record[column])
    if not value.isdecimal():
        raise record.error(f"column {column!r} holds {brief(record[column])}, expected a position")
    return int(value)


def _entry(folder: str, kind: Kind, metrics: tuple[Metric, ...], shape: Shape) -> FilesEntry:
    folders = (f"superglue/{folder}", folder)
    layout = Layout(FILES, Jsonl(), shape, folders)
    return FilesEntry(f"superglue/{folder.lower()}", kind, metrics, (layout,))


SUPERGLUE = (
    _entry(
        "BoolQ",
        Classify(TRUTH),
        (ACCURACY,),
        Texts("question", "passage", "label", id="idx", passage="passage"),
    ),
    _entry(
        "CB",
        Classify(("entailment", "contradiction", "neutral")),
        (ACCURACY, MACRO_F1),
        Texts("premise", "hypothesis", "label", id="idx"),
    ),
    _entry("COPA", Choose(), (ACCURACY,), Copa()),
    _entry("MultiRC", Classify(("0", "1")), (F1_OVER_ANSWERS, EXACT_GROUPS), MultiRC()),
    _entry("ReCoRD", Choose(), (EXACT_MATCH, TOKEN_F1), ReCoRD()),
    _entry(
        "RTE",
        Classify(("entailment", "not_entailment")),
        (ACCURACY,),
        Texts("premise", "hypothesis", "label", id="idx"),
    ),
    _entry("WiC", Classify(TRUTH, marks=2), (ACCURACY,), Wic()),
    _entry("WSC", Classify(TRUTH, marks=2), (ACCURACY,), Wsc()),
)
