import gzip
import tracemalloc
from pathlib import Path

import pytest

from taskmix.errors import UserError
from taskmix.tasks.readers import Jsonl, PlainTsv, Tsv
from taskmix.tasks.shapes import Texts
from taskmix.tasks.sources import FileSource

SHAPE = Texts("text", label="label")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\none\ta\ntwo\tb\n")
    return path


def test_reading_twice_gives_the_same_rows(path: Path) -> None:
    source = FileSource(path, Tsv(), SHAPE)
    assert list(source.rows()) == list(source.rows())


def test_a_fingerprint_depends_on_content_and_reading_but_not_on_the_place(path: Path) -> None:
    copy = path.with_name("copy.tsv")
    copy.write_bytes(path.read_bytes())
    original = FileSource(path, Tsv(), SHAPE).fingerprint()
    assert FileSource(copy, Tsv(), SHAPE).fingerprint() == original
    assert FileSource(path, PlainTsv(("text", "label")), SHAPE).fingerprint() != original
    assert FileSource(path, Tsv(), Texts("label", label="text")).fingerprint() != original
    path.write_text("text\tlabel\none\ta\ntwo\ta\n")
    assert FileSource(path, Tsv(), SHAPE).fingerprint() != original


def test_a_split_without_rows_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.tsv"
    for content in ("", "text\tlabel\n", "\n\n"):
        path.write_text(content)
        with pytest.raises(UserError, match=r"empty\.tsv: has no rows, expected at least one\."):
            list(FileSource(path, Tsv(), SHAPE).rows())


def test_a_split_of_skipped_rows_alone_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\nx\t-\n")
    source = FileSource(path, Tsv(), Texts("text", label="label", unlabelled="-"))
    assert source.skips() == {"label '-'": 1}
    with pytest.raises(UserError, match="has no rows"):
        list(source.rows())


def test_skipped_rows_are_counted_by_rule(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\none\ta\nbroken\nx\t-\ntwo\tb\ny\t-\n")
    source = FileSource(path, Tsv(), Texts("text", label="label", unlabelled="-", broken=True))
    assert [row.at for row in source.rows()] == [2, 5]
    assert source.skips() == {"label '-'": 2, "too few columns": 1}


def test_a_source_without_rules_skips_nothing(path: Path) -> None:
    assert FileSource(path, Tsv(), SHAPE).skips() == {}


def test_a_file_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.writelines(f'{{"text": "{"word " * 20}", "label": "{i % 2}"}}\n' for i in range(15000))
    source = FileSource(path, Jsonl(), SHAPE)
    tracemalloc.start()
    try:
        assert sum(1 for _ in source.rows()) == 15000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
