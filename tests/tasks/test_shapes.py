"""Which cells become labels, which are missing, and how several labels stand in one text."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from taskmix.errors import UserError
from taskmix.tasks.readers import Conll, Csv, Jsonl, Parquet, Reader, Squad, Tsv
from taskmix.tasks.rows import Row
from taskmix.tasks.shapes import (
    Choices,
    LabelledTexts,
    Questions,
    Shape,
    Texts,
    Words,
    optional_labels,
)
from taskmix.tasks.sources import FileSource


def table(delimiter: str) -> Callable[[Path, Sequence[Any]], None]:
    def write(path: Path, labels: Sequence[Any]) -> None:
        lines = [f"x{delimiter}{label}\n" for label in labels]
        path.write_text(f"text{delimiter}label\n" + "".join(lines))

    return write


def jsonl(path: Path, labels: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps({"text": "x", "label": each}) + "\n" for each in labels))


def parquet(path: Path, labels: Sequence[Any]) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["x"] * len(labels), "label": list(labels)}), path)


# By format: reader, writer, the row of its second record, a good label, missing ones.
FORMATS: dict[str, tuple[Reader, Callable[[Path, Sequence[Any]], None], int, Any, list[Any]]] = {
    "csv": (Csv(), table(","), 3, "1", ["", " "]),
    "tsv": (Tsv(), table("\t"), 3, "1", ["", " "]),
    "jsonl": (Jsonl(), jsonl, 2, "1", [None, "", " "]),
    "parquet of texts": (Parquet(), parquet, 2, "1", [None, ""]),
    "parquet of numbers": (Parquet(), parquet, 2, 1.0, [None, math.nan]),
}
CASES = [(name, missing) for name, form in FORMATS.items() for missing in form[-1]]


@pytest.mark.parametrize(("name", "missing"), CASES)
@pytest.mark.parametrize("holds", ["name", "number"])
def test_rows_without_a_label_are_skipped_and_counted_if_that_is_wished(
    tmp_path: Path, name: str, missing: Any, holds: Any
) -> None:
    reader, write, at, good, _ = FORMATS[name]
    path = tmp_path / "file"
    write(path, [good, missing, good])
    source = FileSource(path, reader, LabelledTexts("text", label="label", holds=holds))
    assert [row.at for row in source.rows()] == [at - 1, at + 1]
    assert source.skips() == {"no label": 1}


@pytest.mark.parametrize(("name", "missing"), CASES)
@pytest.mark.parametrize("holds", ["name", "number"])
def test_a_missing_label_is_an_error_that_names_file_and_row(
    tmp_path: Path, name: str, missing: Any, holds: Any
) -> None:
    reader, write, at, good, _ = FORMATS[name]
    path = tmp_path / "file"
    write(path, [good, missing, good])
    shape = Texts("text", label="label", holds=holds)
    with pytest.raises(UserError, match=rf"file, row {at}: column 'label' holds .*, expected a "):
        list(FileSource(path, reader, shape).rows())


@pytest.mark.parametrize(("name", "missing"), CASES)
def test_a_test_split_may_have_rows_without_a_label(
    tmp_path: Path, name: str, missing: Any
) -> None:
    reader, write, _, good, _ = FORMATS[name]
    path = tmp_path / "file"
    write(path, [good, missing, good])
    shape = optional_labels(Texts("text", label="label"))
    rows = list(FileSource(path, reader, shape).rows())
    assert [row.label for row in rows] == ["1", None, "1"]  # type: ignore[union-attr]


def rows_of(path: Path, shape: Shape, *records: dict[str, Any]) -> list[Row]:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return list(FileSource(path, Jsonl(), shape).rows())


@pytest.mark.parametrize(
    ("shape", "record", "column", "field"),
    [
        (Words("w", "t"), {"w": ["a"], "t": ["O"]}, "t", "tags"),
        (Questions("q", "c", "a"), {"q": "?", "c": "x", "a": ["x"]}, "a", "answers"),
        (Choices("x", ("a", "b"), "y"), {"x": "", "a": "", "b": "", "y": 1}, "y", "label"),
        (Texts("x", label="y", holds="names"), {"x": "", "y": ["a"]}, "y", "label"),
    ],
    ids=["tag", "span", "choose", "multilabel"],
)
def test_every_kind_of_label_may_be_missing_in_a_test_split_alone(
    tmp_path: Path, shape: Shape, record: dict[str, Any], column: str, field: str
) -> None:
    path = tmp_path / "mine.jsonl"
    lacking = {name: value for name, value in record.items() if name != column}
    for missing in ({**record, column: None}, lacking):
        found = rows_of(path, optional_labels(shape), record, missing)
        assert getattr(found[0], field) is not None
        assert getattr(found[1], field) is None
        with pytest.raises(UserError, match=rf"mine\.jsonl, row 2: .*'{column}'"):
            rows_of(path, shape, record, missing)


def test_a_short_line_is_broken_and_not_without_a_label(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("text,label\nx,1\ny\n")
    shape = optional_labels(Texts("text", label="label"))
    with pytest.raises(UserError, match=r"mine\.csv, row 3: too few columns, 1 where .* has 2"):
        list(FileSource(path, Csv(), shape).rows())


def test_words_alone_are_a_test_split(tmp_path: Path) -> None:
    path = tmp_path / "mine.conll"
    path.write_text("Ann\nran\n\nBob\tO\n")
    found = list(FileSource(path, Conll(), optional_labels(Words())).rows())
    assert [row.tags for row in found] == [None, ("O",)]  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"mine\.conll: no column 'tags'"):
        list(FileSource(path, Conll(), Words()).rows())


def test_a_squad_question_without_answers_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    asked = [{"id": "1", "question": "?", "answers": []}, {"id": "2", "question": "?"}]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "x", "qas": asked}]}]}))
    with pytest.raises(UserError, match=r"mine\.json, row 2: column 'answers' holds None"):
        list(FileSource(path, Squad(), Questions()).rows())


MULTI = Texts("text", label="label", holds="names")


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["very good|cheap", "very good"], [("very good", "cheap"), ("very good",)]),
        (["very good; cheap", "very good"], [("very good", "cheap"), ("very good",)]),
        (["food, drink|cheap", "food, drink"], [("food, drink", "cheap"), ("food, drink",)]),
        (["good, cheap", "good"], [("good", "cheap"), ("good",)]),
        (["good cheap", "good"], [("good", "cheap"), ("good",)]),
        (['["very good", "cheap"]', "[]"], [("very good", "cheap"), ()]),
        (["['very good', 'cheap']", "['cheap']"], [("very good", "cheap"), ("cheap",)]),
        (["a|b|", ""], [("a", "b"), ()]),
    ],
)
def test_several_labels_in_one_text(
    tmp_path: Path, cells: list[str], labels: list[tuple[str, ...]]
) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("text\tlabel\n" + "".join(f"x\t{cell}\n" for cell in cells))
    for reader in (Csv("\t"), Tsv()) if '"' not in cells[0] else (Tsv(),):
        rows = list(FileSource(path, reader, MULTI).rows())
        assert [row.label for row in rows] == labels  # type: ignore[union-attr]


def test_a_named_separator_is_taken_as_it_is(tmp_path: Path) -> None:
    shape = Texts("text", label="label", holds="names", separator="/")
    found = rows_of(tmp_path / "f", shape, {"text": "", "label": "a|b / c"})
    assert found[0].label == ("a|b", "c")  # type: ignore[union-attr]


def test_what_looks_like_a_list_and_is_none_names_the_row(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"f, row 1: .*'\[a, b', expected a list of labels"):
        rows_of(tmp_path / "f", MULTI, {"text": "", "label": "[a, b"})


def test_whole_numbers_that_pandas_made_floats_are_classes(tmp_path: Path) -> None:
    found = rows_of(tmp_path / "f", Texts("text", label="label"), {"text": "", "label": 2.0})
    assert found[0].label == "2"  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"holds 2\.5, expected a label"):
        rows_of(tmp_path / "f", Texts("text", label="label"), {"text": "", "label": 2.5})
