"""Whatever is done to a file: its rows, a counted skip, or one sentence with file and row."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskmix.errors import UserError
from taskmix.tasks.catalogue.superglue import MultiRC, Wic, Wsc
from taskmix.tasks.kinds import Classify
from taskmix.tasks.readers import Conll, Csv, Jsonl, Mrqa, PlainTsv, Reader, Squad, Tsv
from taskmix.tasks.shapes import Questions, Shape, Texts, Words
from taskmix.tasks.sources import FileSource

PLAIN = Texts("text", label="label")
LENIENT = Texts("text", label="label", unlabelled="-", broken=True)
NUMBER = Texts("text", label="label", holds="number")

steady = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@dataclass(frozen=True)
class Format:
    """A format, a good file of it, and how many records a text of it should hold."""

    reader: Reader
    shape: Shape
    good: str
    records: Callable[[str], int] | None = None

    def source(self, path: Path) -> FileSource:
        return FileSource(path, self.reader, self.shape)


def table_rows(text: str) -> int:
    return max(sum(bool(line.strip("\r ")) for line in text.split("\n")) - 1, 0)


def json_rows(text: str) -> int:
    return sum(bool(line.strip()) for line in text.split("\n"))


def jsonl(*values: object) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


TABLE = "text{0}label\n" + "".join(f"text {i}{{0}}{i % 2}\n" for i in range(8))
QAS = [{"id": "1", "question": "é?", "answers": [{"text": "cat", "answer_start": 4}]}]
SQUAD = {"data": [{"paragraphs": [{"context": "the cat sat", "qas": QAS}]}]}
MRQA = {
    "context": "the cat sat",
    "qas": [
        {
            "qid": "1",
            "question": "é?",
            "answers": ["cat", "Cat"],
            "detected_answers": [{"char_spans": [[4, 6]]}],
        }
    ],
}
WIC = {
    "sentence1": "on it", "sentence2": "at it", "label": True, "idx": 1,
    "start1": 3, "end1": 5, "start2": 3, "end2": 5,
}  # fmt: skip
WSC = {
    "text": "Ann said she won", "label": False, "idx": 0,
    "target": {"span1_index": 0, "span1_text": "Ann", "span2_index": 2, "span2_text": "she"},
}  # fmt: skip
MULTIRC = {
    "idx": 0,
    "passage": {
        "text": "é",
        "questions": [
            {"idx": 1, "question": "q", "answers": [{"idx": 2, "text": "a", "label": 1}]}
        ],
    },
}

FORMATS = {
    "tsv": Format(Tsv(), PLAIN, TABLE.format("\t"), table_rows),
    "tsv with rules": Format(PlainTsv(wide="cut"), LENIENT, TABLE.format("\t"), table_rows),
    "tsv of numbers": Format(Tsv(), NUMBER, TABLE.format("\t"), table_rows),
    "csv": Format(Csv(), PLAIN, TABLE.format(",") + '"quoted, ""é""",1\n'),
    "jsonl": Format(
        Jsonl(),
        PLAIN,
        jsonl(*({"text": f"é {i}", "label": str(i % 2)} for i in range(5))),
        json_rows,
    ),
    "conll": Format(Conll(), Words(), "Ann\tB-x\né\tO\n\nB\tO\n\t\nC\tO\n"),
    "squad": Format(Squad(), Questions(), json.dumps(SQUAD, ensure_ascii=False)),
    "mrqa": Format(Mrqa(), Questions(), jsonl({"header": {}}, MRQA, MRQA)),
    "wic": Format(Jsonl(), Wic(), jsonl(WIC, WIC), json_rows),
    "wsc": Format(Jsonl(), Wsc(), jsonl(WSC, WSC), json_rows),
    "multirc": Format(Jsonl(), MultiRC(), jsonl(MULTIRC, MULTIRC)),
}


def check(form: Format, path: Path, content: bytes) -> None:
    """The file is read whole, or there is one sentence about it."""
    path.write_bytes(content)
    source = form.source(path)
    try:
        rows = sum(1 for _ in source.rows())
    except UserError as error:
        sentence = str(error)
        assert sentence.startswith(str(path))
        assert "\n" not in sentence
        assert re.match(r"(, row \d+)?: ", sentence.removeprefix(str(path)))
    else:
        if form.records and not content.startswith(b"\x1f\x8b"):
            expected = form.records(content.decode("utf-8-sig"))
            assert rows + sum(source.skips().values()) == expected


every_format = pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))


@every_format
def test_the_good_file_is_good(form: Format, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(form.good)
    assert list(form.source(path).rows())


@every_format
@steady
@given(cut=st.floats(0, 1), packed=st.booleans())
def test_truncated(form: Format, tmp_path: Path, cut: float, packed: bool) -> None:
    content = gzip.compress(form.good.encode(), mtime=0) if packed else form.good.encode()
    check(form, tmp_path / "file", content[: int(cut * len(content))])


@every_format
@steady
@given(data=st.data())
def test_shuffled(form: Format, tmp_path: Path, data: st.DataObject) -> None:
    order = data.draw(st.permutations(form.good.splitlines(keepends=True)))
    check(form, tmp_path / "file", "".join(order).encode())


@every_format
@steady
@given(data=st.data(), junk=st.binary(min_size=1, max_size=4))
def test_with_bytes_put_in(form: Format, tmp_path: Path, data: st.DataObject, junk: bytes) -> None:
    content = form.good.encode()
    place = data.draw(st.integers(0, len(content)))
    check(form, tmp_path / "file", content[:place] + junk + content[place:])


@every_format
@steady
@given(data=st.data(), text=st.text(min_size=1, max_size=6))
def test_with_text_put_in(form: Format, tmp_path: Path, data: st.DataObject, text: str) -> None:
    place = data.draw(st.integers(0, len(form.good)))
    check(form, tmp_path / "file", (form.good[:place] + text + form.good[place:]).encode())


@every_format
@steady
@given(content=st.binary(max_size=200))
def test_of_nothing_but_bytes(form: Format, tmp_path: Path, content: bytes) -> None:
    check(form, tmp_path / "file", content)


@every_format
@pytest.mark.parametrize("length", [200_000, 3_000_000])
def test_over_long(form: Format, tmp_path: Path, length: int) -> None:
    check(form, tmp_path / "file", (form.good + "x" * length).encode())
    check(form, tmp_path / "file", ("x" * length + form.good).encode())


@every_format
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\n\n \n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)]
)
def test_empty(form: Format, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UserError, match="file: "):
        list(form.source(path).rows())


@pytest.mark.parametrize("name", ["tsv", "jsonl"])
@steady
@given(label=st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"])))
def test_wrongly_labelled(name: str, tmp_path: Path, label: str) -> None:
    form = FORMATS[name]
    path = tmp_path / "file"
    bad = jsonl({"text": "t", "label": label}) if name == "jsonl" else f"t\t{label}\n"
    path.write_text(form.good + bad, encoding="utf-8", newline="")
    if not label.strip():
        at = form.good.count("\n") + 1
        with pytest.raises(UserError, match=rf"file, row {at}: column 'label' holds .* a label"):
            list(form.source(path).rows())
        return
    rows = list(form.source(path).rows())
    if label not in ("0", "1"):
        with pytest.raises(UserError, match=rf"file, row {rows[-1].at}: label ") as caught:
            Classify(("0", "1")).encode(rows, None, str(path))
        assert "is not one of: 0, 1" in str(caught.value)
