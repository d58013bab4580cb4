import csv
import gzip
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.errors import UserError
from taskmix.tasks.readers import Conll, Csv, Jsonl, Mrqa, Parquet, PlainTsv, Reader, Squad, Tsv
from taskmix.tasks.readers import lines as lines_module


def values(reader: Reader, path: Path) -> list[tuple[int, dict[str, object]]]:
    return [(record.at, dict(record.values)) for record in reader.records(path)]


def written(tmp_path: Path, content: str | bytes, name: str = "file") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint(reader: Reader, path: Path) -> str:
    with pytest.raises(UserError) as caught:
        list(reader.records(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("reader", [Tsv(), PlainTsv()])
def test_a_quotation_mark_in_a_tsv_is_text(tmp_path: Path, reader: Reader) -> None:
    path = written(tmp_path, 'a\tb\n"x\ty"\n')
    assert values(reader, path) == [(2, {"a": '"x', "b": 'y"'})]


def test_the_quotation_marks_of_a_benchmark_are_text_whatever_they_look_like(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, 'a\tb\n"x ""y"""\tz\n')
    assert values(PlainTsv(), path) == [(2, {"a": '"x ""y"""', "b": "z"})]


def read(path: Path) -> list[tuple[str, str]] | UserError:
    try:
        return [(record["text"], record["label"]) for record in Tsv().records(path)]
    except UserError as error:
        return error


cells = st.text(st.sampled_from('ab,"\t\n'), min_size=1, max_size=6)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=5),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
def test_a_tsv_that_a_library_has_written_comes_back_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], quoting: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "library.tsv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=quoting)  # type: ignore[arg-type]
        writer.writerows([("text", "label"), *rows])
    found = read(path)
    assert found == rows or isinstance(found, UserError)
    if isinstance(found, UserError):  # a tab and a line break that give the same columns again
        assert quoting == csv.QUOTE_MINIMAL
        assert not any('"' in cell for row in rows for cell in row)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    rows=st.lists(
        st.tuples(*[st.text(st.sampled_from('ab,"'), min_size=1, max_size=6)] * 2),
        min_size=1,
        max_size=5,
    )
)
def test_a_tsv_with_quotation_marks_as_text_comes_back_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "plain.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    found = read(path)
    if isinstance(found, UserError):
        assert re.search(r"plain\.tsv, row \d+: a column", str(found))
        assert any(cell.startswith('"') for row in rows for cell in row)
    elif found != rows:  # no other program than a library of tables doubles all marks
        assert any(re.fullmatch(r'"([^"]|"")*""([^"]|"")*"', cell) for row in rows for cell in row)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('a\tb\n"x ""y"" z"\t1\n', [('x "y" z', "1")]),
        ('a\tb\n"x\ty"\t1\n"u\nv"\t2\n', [("x\ty", "1"), ("u\nv", "2")]),
        ('"a"\t"b"\n"x"\t"1"\n', [("x", "1")]),
        ('a\tb\n"x"\t1\nsay "y" now\t2\n', [('"x"', "1"), ('say "y" now', "2")]),
        ('a\tb\n"No," he said.\t1\n', [('"No," he said.', "1")]),
        ('a\tb\n"open\t1\nnext\t2\n', [('"open', "1"), ("next", "2")]),
    ],
)
def test_a_file_shows_whether_its_quotation_marks_are_text(
    tmp_path: Path, content: str, rows: list[tuple[str, str]]
) -> None:
    path = written(tmp_path, content)
    assert [(record["a"], record["b"]) for record in Tsv().records(path)] == rows


def test_quotation_marks_that_may_be_both_name_the_row(tmp_path: Path) -> None:
    message = complaint(Tsv(), written(tmp_path, 'a\tb\nx\t1\n"y"\t2\n'))
    assert "file, row 3: a column stands in quotation marks" in message
    mixed = 'a\tb\nsay "x"\t1\n"y ""z"" y"\t2\n'
    message = complaint(Tsv(), written(tmp_path, mixed))
    assert "file, row 3: a column is quoted as in CSV, but the quotation marks of row 2" in message


def test_a_tsv_may_come_without_a_header(tmp_path: Path) -> None:
    path = written(tmp_path, "x\ty\n")
    assert values(PlainTsv(("a", "b")), path) == [(1, {"a": "x", "b": "y"})]


def test_gzip_is_recognised_by_content(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"a\tb\nx\ty\n"), "plainly.tsv")
    assert values(Tsv(), path) == [(2, {"a": "x", "b": "y"})]


def test_a_byte_order_mark_and_carriage_returns_are_no_text(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffa\tb\r\nx\ty\r\n")
    assert values(Tsv(), path) == [(2, {"a": "x", "b": "y"})]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, "a\tb\nx\u2028x\x85x\x0bx\ty\n")
    assert values(Tsv(), path)[0][1]["a"] == "x\u2028x\x85x\x0bx"


def test_too_few_columns_name_file_and_row(tmp_path: Path) -> None:
    path = written(tmp_path, "a\tb\nx\ty\nx\n")
    record = list(Tsv().records(path))[1]
    with pytest.raises(UserError, match=r"file, row 3: too few columns, 1 where the header has 2"):
        record["b"]


def test_too_many_columns_are_an_error_or_left_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "a\tb\nx\ty\tz\n")
    assert "row 2: too many columns, 3 where the header has 2" in complaint(Tsv(), path)
    assert values(PlainTsv(wide="cut"), path) == [(2, {"a": "x", "b": "y"})]


def test_a_missing_column_names_those_that_are_there(tmp_path: Path) -> None:
    record = next(Tsv().records(written(tmp_path, "a\tb\nx\ty\n")))
    with pytest.raises(UserError, match=r"no column 'c'; columns found: 'a', 'b'"):
        record["c"]


def test_a_column_must_be_in_the_header_once(tmp_path: Path) -> None:
    assert "column 'a' twice" in complaint(Tsv(), written(tmp_path, "a\ta\nx\ty\n"))


def test_a_quoted_csv_field_may_span_lines(tmp_path: Path) -> None:
    path = written(tmp_path, 'a,b\n"x, ""y""\nz",1\nw,2\n')
    assert values(Csv(), path) == [(2, {"a": 'x, "y"\nz', "b": "1"}), (4, {"a": "w", "b": "2"})]


def test_a_csv_field_may_be_long_and_the_process_wide_limit_stays(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    long = "x" * (limit + 1)
    assert values(Csv(), written(tmp_path, f"a,b\n{long},1\n"))[0][1]["a"] == long
    assert csv.field_size_limit() == limit


def test_an_unclosed_csv_quote_names_the_row_where_it_opens(tmp_path: Path) -> None:
    message = complaint(Csv(), written(tmp_path, 'a,b\nx,1\n"y,2\nz,3\n'))
    assert "row 3: not well-formed CSV" in message


def test_jsonl_keeps_types_and_skips_blank_lines(tmp_path: Path) -> None:
    path = written(tmp_path, '{"a": 1, "b": [true]}\n\n{"a": null}\n')
    assert values(Jsonl(), path) == [(1, {"a": 1, "b": [True]}), (3, {"a": None})]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected a JSON mapping, found [1]"),
        ('{"a": ' + "1" * 5000 + "}", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_broken_json_names_file_and_row(tmp_path: Path, line: str, reason: str) -> None:
    message = complaint(Jsonl(), written(tmp_path, '{"a": 1}\n' + line))
    assert "file, row 2: " in message
    assert reason in message


def test_whole_surrogate_pairs_are_fine(tmp_path: Path) -> None:
    assert values(Jsonl(), written(tmp_path, '{"a": "\\ud83d\\ude00"}')) == [(1, {"a": "😀"})]


@pytest.mark.parametrize("reader", [Tsv(), Csv(), Jsonl(), Conll(), Squad(), Mrqa()])
def test_text_that_is_not_utf8_names_file_and_row(tmp_path: Path, reader: Reader) -> None:
    message = complaint(reader, written(tmp_path, b'{"a": 1, "qas": [], "context": ""}\n\xff\n'))
    assert "file, row 2: not UTF-8" in message


@pytest.mark.parametrize("reader", [Tsv(), Csv(), Jsonl(), Conll(), Squad(), Mrqa(), Parquet()])
def test_a_missing_file_is_named(tmp_path: Path, reader: Reader) -> None:
    assert complaint(reader, tmp_path / "absent").endswith("absent: no such file.")


@pytest.mark.parametrize("reader", [Tsv(), Csv(), Jsonl(), Conll(), Squad(), Mrqa()])
def test_truncated_gzip_is_named(tmp_path: Path, reader: Reader) -> None:
    line = json.dumps({"context": "", "qas": []}) + "\n"
    whole = gzip.compress((line * 50).encode())
    path = written(tmp_path, whole[: len(whole) - 9])
    assert "damaged or truncated" in complaint(reader, path)


@pytest.mark.parametrize("reader", [Tsv(), Csv(), Jsonl(), Conll(), Squad(), Mrqa(), Parquet()])
def test_a_pipe_is_one_sentence_and_no_waiting(tmp_path: Path, reader: Reader) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "pipe: expected a regular file, found a pipe" in complaint(reader, pipe)
    assert "expected a regular file" in complaint(reader, Path(os.devnull))


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert "cannot be read" in complaint(Tsv(), tmp_path)


def test_a_line_without_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "LONGEST_LINE", 100)
    message = complaint(Tsv(), written(tmp_path, "a\tb\n" + "x" * 1000))
    assert "row 2: longer than 100 bytes" in message


def test_conll_sentences_stand_at_their_first_line(tmp_path: Path) -> None:
    path = written(tmp_path, "\nA\tO\nB\tB-x\n\t\n\n\nC\tO")
    assert values(Conll(), path) == [
        (2, {"words": ["A", "B"], "tags": ["O", "B-x"]}),
        (7, {"words": ["C"], "tags": ["O"]}),
    ]


def test_conll_without_tags_has_words_alone(tmp_path: Path) -> None:
    assert values(Conll(), written(tmp_path, "A\nB\n")) == [(1, {"words": ["A", "B"]})]


def test_a_conll_line_without_its_tag_names_file_and_row(tmp_path: Path) -> None:
    message = complaint(Conll(), written(tmp_path, "A\tO\nB\n"))
    assert "file, row 2: found 'B', expected a word, a tab and its tag" in message


SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "the cat sat",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "who?",
                            "answers": [{"text": "cat", "answer_start": 4}],
                        },
                        {"id": "q2", "question": "where?", "answers": [], "is_impossible": True},
                        {"id": "q3", "question": "when?"},
                    ],
                }
            ],
        }
    ],
}


def test_squad_has_a_record_for_each_question(tmp_path: Path) -> None:
    found = values(Squad(), written(tmp_path, json.dumps(SQUAD)))
    assert [(at, v["id"], v["context"], v["answers"]) for at, v in found] == [
        (1, "q1", "the cat sat", [("cat", 4)]),
        (2, "q2", "the cat sat", []),
        (3, "q3", "the cat sat", None),
    ]


def test_a_squad_question_without_its_text_is_named(tmp_path: Path) -> None:
    broken = json.loads(json.dumps(SQUAD))
    del broken["data"][0]["paragraphs"][0]["qas"][1]["question"]
    message = complaint(Squad(), written(tmp_path, json.dumps(broken)))
    assert "file, row 2: no column 'question'" in message


MRQA = [
    {"header": {"dataset": "SQuAD", "split": "train"}},
    {
        "id": "c",
        "context": "the cat sat",
        "context_tokens": [["the", 0], ["cat", 4], ["sat", 8]],
        "qas": [
            {
                "id": "x",
                "qid": "q1",
                "question": "who?",
                "question_tokens": [["who", 0], ["?", 3]],
                "answers": ["Cat", "feline"],
                "detected_answers": [
                    {"text": "cat", "char_spans": [[4, 6]], "token_spans": [[1, 1]]}
                ],
            }
        ],
    },
]


def test_mrqa_spans_include_their_last_character(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(line) for line in MRQA)
    assert values(Mrqa(), written(tmp_path, gzip.compress(lines.encode()))) == [
        (
            2,
            {
                "id": "q1",
                "question": "who?",
                "context": "the cat sat",
                "answers": {"text": ["cat"], "answer_start": [4], "accepted": ["Cat", "feline"]},
            },
        )
    ]


@pytest.mark.parametrize("span", [[7], [7, 6], [-1, 2], [4, 11], "x", None])
def test_a_span_that_is_none_names_file_and_row(tmp_path: Path, span: object) -> None:
    broken = json.loads(json.dumps(MRQA))
    broken[1]["qas"][0]["detected_answers"][0]["char_spans"] = [span]
    lines = "\n".join(json.dumps(line) for line in broken)
    assert f"row 2: char_spans holds {span!r}" in complaint(Mrqa(), written(tmp_path, lines))


def test_parquet_is_read_in_batches(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [str(i) for i in range(3000)], "b": list(range(3000))}), path)
    found = values(Parquet(), path)
    assert len(found) == 3000
    assert found[2999] == (3000, {"a": "2999", "b": 2999})


def test_what_is_no_parquet_says_so(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert "not readable as Parquet" in complaint(Parquet(), written(tmp_path, b"x" * 100))
