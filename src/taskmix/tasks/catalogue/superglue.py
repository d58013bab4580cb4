"""The eight tasks of SuperGLUE (Wang et al. 2019), from the files of super.gluebenchmark.com."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
from taskmix.tasks.readers.record import brief
from taskmix.tasks.rows import ChoiceRow, Mark, TextRow
from taskmix.tasks.shapes import Shape, Skip, Texts

FILES = {"train": "train.jsonl", "dev": "val.jsonl", "test": "test.jsonl"}
TRUTH = ("false", "true")
ASKED = {"cause": "What was the cause?", "effect": "What happened as a result?"}
GAP = "@placeholder"
HIGHLIGHT = "@highlight"


@dataclass(frozen=True)
class Wic:
    """WiC: is a word used in the same sense in two sentences? The word is marked in both."""

    labelled: bool = True
    skips = False

    def without_labels(self) -> "Wic":
        """Return the same shape for a split whose labels are not published."""
        return replace(self, labelled=False)

    def rows(self, record: FileRecord) -> Iterator[TextRow]:
        """Yield the row that a record holds."""
        yield TextRow(
            at=record.at,
            text=record.text("sentence1"),
            pair=record.text("sentence2"),
            label=name(record, "label", record["label"]) if self.labelled else None,
            marks=(_mark(record, "1"), _mark(record, "2")),
            id=str(record["idx"]),
        )


@dataclass(frozen=True)
class Wsc:
    """WSC: does a pronoun stand for a noun? Both are marked in the text.

    The file counts words, set apart by white space. Where the word at that place is not the one
    that the file quotes (it happens), the quoted one nearest to it is marked, if there is any.
    """

    labelled: bool = True
    skips = False

    def without_labels(self) -> "Wsc":
        """Return the same shape for a split whose labels are not published."""
        return replace(self, labelled=False)

    def rows(self, record: FileRecord) -> Iterator[TextRow]:
        """Yield the row that a record holds."""
        text, target = record.text("text"), record.inner("target")
        yield TextRow(
            at=record.at,
            text=text,
            label=name(record, "label", record["label"]) if self.labelled else None,
            marks=tuple(_words(target, text, span) for span in ("span1", "span2")),
            id=str(record["idx"]),
            passage=text,
        )


@dataclass(frozen=True)
class MultiRC:
    """MultiRC: is this answer to a question about a passage right? A row for each answer.

    A question's answers are a group, scored together; all answers to questions about a text are
    held out together. A row's id is passage, question and answer.
    """

    labelled: bool = True
    skips = False

    def without_labels(self) -> "MultiRC":
        """Return the same shape for a split whose labels are not published."""
        return replace(self, labelled=False)

    def rows(self, record: FileRecord) -> Iterator[TextRow]:
        """Yield the rows that a passage holds."""
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


@dataclass(frozen=True)
class Copa:
    """COPA: which of two sentences is the cause, or the effect, of a third?"""

    labelled: bool = True
    skips = False

    def without_labels(self) -> "Copa":
        """Return the same shape for a split whose labels are not published."""
        return replace(self, labelled=False)

    def rows(self, record: FileRecord) -> Iterator[ChoiceRow]:
        """Yield the row that a record holds."""
        asked = record.text("question")
        if asked not in ASKED:
            raise record.error(f"column 'question' holds {brief(asked)}, expected cause or effect")
        yield ChoiceRow(
            at=record.at,
            text=f"{record.text('premise')} {ASKED[asked]}",
            choices=(record.text("choice1"), record.text("choice2")),
            label=position(record, "label", 2) if self.labelled else None,
            id=str(record["idx"]),
        )


@dataclass(frozen=True)
class ReCoRD:
    """ReCoRD: which entity of a passage fills the gap in a sentence? A row for each sentence.

    A choice is the sentence with an entity in its gap; entities of the same name are one choice.
    The label is the first choice that is right; a name scores if it is any of those accepted. A
    sentence none of whose answers is an entity is skipped and counted.
    """

    labelled: bool = True

    @property
    def skips(self) -> bool:
        """Whether a rule of this shape passes over records."""
        return self.labelled

    def without_labels(self) -> "ReCoRD":
        """Return the same shape for a split whose answers are not published."""
        return replace(self, labelled=False)

    def rows(self, record: FileRecord) -> Iterator[ChoiceRow | Skip]:
        """Yield the rows that a passage holds."""
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
        accepted = tuple(dict.fromkeys(_accepted(query))) if self.labelled else ()
        right = [number for number, each in enumerate(names) if each in accepted]
        if self.labelled and not right:
            return Skip("no answer among the entities")
        return ChoiceRow(
            at=query.at,
            text=" ".join(text.replace(HIGHLIGHT, " ").split()),
            choices=tuple(sentence.replace(GAP, each) for each in names),
            label=right[0] if self.labelled else None,
            answers=accepted,
            id=str(query["idx"]),
            names=names,
        )


def _entity(entity: FileRecord, text: str) -> str:
    """Return the name of an entity; the format's spans include their last character."""
    start, last = _place(entity, "start"), _place(entity, "end")
    if not start <= last < len(text):
        raise entity.error(f"no entity {start} to {last} in a text of {len(text)} characters")
    return text[start : last + 1]


def _accepted(query: FileRecord) -> Iterator[str]:
    return (answer.text("text") for answer in query.inners("answers"))


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
    there = words[place : place + len(quoted)]
    if not there:
        raise target.error(f"{span} {brief(' '.join(quoted))} is not at word {place} of the text")
    start = there[0].start()
    pattern = re.compile(r"\s+".join(map(re.escape, quoted)), re.IGNORECASE)
    nearest = min(
        pattern.finditer(text), key=lambda match: abs(match.start() - start), default=None
    )
    return Mark(*nearest.span()) if nearest else Mark(start, there[-1].end())


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
