import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from taskmix.errors import UserError
from taskmix.tasks.catalogue import find
from taskmix.tasks.catalogue.superglue import Copa, ReCoRD
from taskmix.tasks.readers import Jsonl
from taskmix.tasks.rows import ChoiceRow, Mark, TextRow
from taskmix.tasks.shapes import Shape
from taskmix.tasks.sources import FileSource


def superglue(root: Path, folder: str, split: str, *lines: dict[str, Any]) -> None:
    path = root / "SuperGLUE" / folder / f"{split}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


def rows(root: Path, folder: str, line: dict[str, Any], hidden: dict[str, Any]) -> list[TextRow]:
    """The rows of a labelled and of an unlabelled line."""
    superglue(root, folder, "train", line)
    superglue(root, folder, "val", line)
    superglue(root, folder, "test", hidden)
    task = find(f"superglue/{folder.lower()}", root)
    assert list(task.split("train").rows()) == list(task.split("dev").rows())
    return [*task.split("train").rows(), *task.split("test").rows()]  # type: ignore[list-item]


def without(line: dict[str, Any], key: str = "label") -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != key}


def test_boolq_labels_are_truth_values(tmp_path: Path) -> None:
    line = {"question": "is it", "passage": "It is.", "idx": 7, "label": True}
    assert rows(tmp_path, "BoolQ", line, without(line)) == [
        TextRow(1, "is it", "It is.", "true", id="7", passage="It is."),
        TextRow(1, "is it", "It is.", None, id="7"),
    ]


def test_cb_is_scored_by_accuracy_and_macro_f1(tmp_path: Path) -> None:
    line = {"premise": "p", "hypothesis": "h", "label": "neutral", "idx": 0}
    assert rows(tmp_path, "CB", line, without(line))[0] == TextRow(1, "p", "h", "neutral", id="0")
    assert [metric.name for metric in find("superglue/cb", tmp_path).metrics] == [
        "accuracy",
        "macro_f1",
    ]


def test_wic_marks_the_word_in_both_sentences(tmp_path: Path) -> None:
    line = {
        "word": "place",
        "sentence1": "Come to my place later?",
        "sentence2": "A system with no place for it.",
        "idx": 3,
        "label": False,
        "start1": 11,
        "end1": 16,
        "start2": 17,
        "end2": 22,
        "version": 1.1,
    }
    labelled, hidden = rows(tmp_path, "WiC", line, without(line))
    assert labelled.marks == (Mark(11, 16), Mark(17, 22, second=True)) == hidden.marks
    assert labelled.text[11:16] == "place"
    assert (labelled.label, hidden.label) == ("false", None)


def wsc(text: str, index: int, quoted: str) -> dict[str, Any]:
    target = {"span1_index": 0, "span1_text": "Mark", "span2_index": index, "span2_text": quoted}
    return {"text": text, "target": target, "idx": 0, "label": True}


@pytest.mark.parametrize(
    ("text", "index", "quoted", "marked"),
    [
        ("Mark  lied. He knew that he lied.", 2, "He", (12, 14)),
        ("Mark  lied. He knew that he lied.", 5, "he", (25, 27)),
        ("Mark saw the big\ncat, he said", 2, "the big cat", (9, 20)),
        ("Mark wants to use it", 3, "it", (18, 20)),
        ("Mark's cat, it slept", 1, "a cat", (7, 14)),
    ],
)
def test_wsc_counts_words(
    tmp_path: Path, text: str, index: int, quoted: str, marked: tuple[int, int]
) -> None:
    line = wsc(text, index, quoted)
    labelled = rows(tmp_path, "WSC", line, without(line))[0]
    assert labelled.marks == (Mark(0, 4), Mark(*marked))
    assert labelled.label == "true"


def test_a_wsc_word_that_is_not_there_names_file_and_row(tmp_path: Path) -> None:
    line = wsc("Mark lied.", 2, "they")
    with pytest.raises(UserError, match=r"train\.jsonl\.gz, row 1: span2 'they' is not at word 2"):
        rows(tmp_path, "WSC", line, without(line))


MULTIRC = {
    "idx": 5,
    "version": 1.1,
    "passage": {
        "text": "A passage.",
        "questions": [
            {
                "question": "What?",
                "idx": 9,
                "answers": [
                    {"text": "This", "idx": 20, "label": 1},
                    {"text": "That", "idx": 21, "label": 0},
                ],
            },
            {"question": "Who?", "idx": 10, "answers": [{"text": "I", "idx": 22, "label": 1}]},
        ],
    },
}


def test_multirc_has_a_row_for_each_answer_and_a_group_for_each_question(tmp_path: Path) -> None:
    hidden = json.loads(json.dumps(MULTIRC))
    for question in hidden["passage"]["questions"]:
        for answer in question["answers"]:
            del answer["label"]
    found = rows(tmp_path, "MultiRC", MULTIRC, hidden)
    about = "A passage."
    assert found[:3] == [
        TextRow(1, about, "What? This", "1", group="5/9", id="5/9/20", passage=about),
        TextRow(1, about, "What? That", "0", group="5/9", id="5/9/21", passage=about),
        TextRow(1, about, "Who? I", "1", group="5/10", id="5/10/22", passage=about),
    ]
    assert [row.label for row in found[3:]] == [None, None, None]
    assert [metric.name for metric in find("superglue/multirc", tmp_path).metrics] == ["f1a", "em"]


@pytest.mark.parametrize(
    ("folder", "line", "sentence"),
    [
        ("BoolQ", {"question": "q", "idx": 0, "label": True}, "no column 'passage'"),
        ("BoolQ", {"question": 5, "passage": "", "idx": 0, "label": True}, "expected a text"),
        ("CB", {"premise": "p", "hypothesis": "h", "label": None, "idx": 0}, "expected a label"),
        ("MultiRC", {"idx": 0, "passage": "text"}, "expected a mapping"),
        ("MultiRC", {"idx": 0, "passage": {"text": "", "questions": 1}}, "expected a list"),
        ("WSC", {"idx": 0, "text": "a b"}, "no column 'target'"),
    ],
)
def test_a_broken_line_names_file_and_row(
    tmp_path: Path, folder: str, line: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=r"train\.jsonl\.gz, row 1: ") as caught:
        rows(tmp_path, folder, line, line)
    assert sentence in str(caught.value)


def choices(
    tmp_path: Path, reading: Shape, *lines: dict[str, Any]
) -> tuple[list[ChoiceRow], dict[str, int]]:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = FileSource(path, Jsonl(), reading)
    return list(source.rows()), dict(source.skips())  # type: ignore[arg-type]


COPA = {
    "premise": "It rained.",
    "choice1": "I got wet.",
    "choice2": "I slept.",
    "question": "effect",
    "label": 0,
    "idx": 4,
}


def test_copa_asks_for_cause_or_effect(tmp_path: Path) -> None:
    cause = COPA | {"question": "cause", "label": 1}
    rows, _ = choices(tmp_path, Copa(), COPA, cause)
    assert rows == [
        ChoiceRow(
            1, "It rained. What happened as a result?", ("I got wet.", "I slept."), 0, id="4"
        ),
        ChoiceRow(2, "It rained. What was the cause?", ("I got wet.", "I slept."), 1, id="4"),
    ]
    hidden, _ = choices(tmp_path, Copa().without_labels(), without(COPA))
    assert hidden[0].label is None


@pytest.mark.parametrize("change", [{"label": 2}, {"label": True}, {"question": "why"}])
def test_a_broken_copa_line_names_file_and_row(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"lines\.jsonl, row 1: column .* expected"):
        choices(tmp_path, Copa(), COPA | change)


PASSAGE = "Tony Blair met Bush.\n@highlight\nMr Blair and Bush talked"
RECORD = {
    "source": "Daily mail",
    "passage": {
        "text": PASSAGE,
        "entities": [
            {"start": 0, "end": 9},
            {"start": 15, "end": 18},
            {"start": 35, "end": 39},
            {"start": 45, "end": 48},
        ],
    },
    "qas": [
        {
            "query": "The visit pleased @placeholder.",
            "answers": [
                {"start": 35, "end": 39, "text": "Blair"},
                {"start": 0, "end": 9, "text": "Tony Blair"},
            ],
            "idx": 8,
        },
        {
            "query": "@placeholder slept.",
            "answers": [{"start": 3, "end": 4, "text": "y B"}],
            "idx": 9,
        },
    ],
    "idx": 2,
}


def test_record_fills_the_gap_with_every_entity_once(tmp_path: Path) -> None:
    rows, skips = choices(tmp_path, ReCoRD(), RECORD)
    assert rows == [
        ChoiceRow(
            at=1,
            text="Tony Blair met Bush. Mr Blair and Bush talked",
            choices=(
                "The visit pleased Tony Blair.",
                "The visit pleased Bush.",
                "The visit pleased Blair.",
            ),
            label=0,
            answers=("Blair", "Tony Blair"),
            id="8",
            names=("Tony Blair", "Bush", "Blair"),
        )
    ]
    assert skips == {"no answer among the entities": 1}


def test_hidden_record_rows_are_all_there(tmp_path: Path) -> None:
    hidden = json.loads(json.dumps(RECORD))
    for query in hidden["qas"]:
        del query["answers"]
    rows, skips = choices(tmp_path, ReCoRD().without_labels(), hidden)
    assert [(row.id, row.label, row.answers) for row in rows] == [("8", None, ()), ("9", None, ())]
    assert not skips


@pytest.mark.parametrize(
    ("entities", "query", "sentence"),
    [
        ([], "@placeholder", "without entities"),
        ([{"start": 5, "end": 4}], "@placeholder", "no entity 5 to 4"),
        ([{"start": 5, "end": 500}], "@placeholder", "no entity 5 to 500 in a text of 56"),
        ([{"start": 0, "end": 9}], "no gap", "the query has no @placeholder"),
    ],
)
def test_a_broken_record_line_names_file_and_row(
    tmp_path: Path, entities: list[dict[str, int]], query: str, sentence: str
) -> None:
    line = {
        "idx": 0,
        "passage": {"text": PASSAGE, "entities": entities},
        "qas": [{"query": query, "answers": [{"text": "Tony Blair"}], "idx": 0}],
    }
    with pytest.raises(UserError, match=rf"lines\.jsonl, row 1: .*{sentence}"):
        choices(tmp_path, ReCoRD(), line)
