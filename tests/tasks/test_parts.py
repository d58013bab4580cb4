from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.tasks.encoding import encode
from bursar.tasks.kinds import Classify, Span
from bursar.tasks.parts import Split, hold_out
from bursar.tasks.rows import Answer, QuestionRow, Row, TextRow
from bursar.tasks.tokenizer import Tokenizer


def columns(split, items):  # type: ignore[no-untyped-def]
    """All columns of some items: what the encoder reads, and the targets."""
    inputs, targets = split.batch(items)
    return inputs | targets


@dataclass(frozen=True)
class Memory:
    content: tuple[Row, ...]
    where: str = "memory"

    def rows(self) -> Iterator[Row]:
        return iter(self.content)

    def skips(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        return blake2b(repr(self.content).encode(), digest_size=16).hexdigest()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat on a mat"] * 9, vocabulary=100, max_length=16)


def texts(count: int) -> tuple[TextRow, ...]:
    return tuple(
        TextRow(at, "cat " * (at % 7 + 1), label=("no", "yes")[at % 2])
        for at in range(1, count + 1)
    )


def questions(count: int) -> tuple[QuestionRow, ...]:
    """Contexts of one to five windows, whose answers are their own numbers."""
    rows = []
    for at in range(1, count + 1):
        context = "the mat sat " * (3 * (at % 5)) + "cat"
        rows.append(QuestionRow(at, "on", context, (Answer("cat", len(context) - 3),)))
    return tuple(rows)


def split(tokenizer: Tokenizer, rows: tuple[Row, ...], cache: Path) -> Split:
    kind = Classify(("no", "yes")) if isinstance(rows[0], TextRow) else Span(stride=4)
    return Split(encode(kind, Memory(rows), tokenizer, cache), Memory(rows))


def test_at_most_so_many_rows_are_spread_over_the_split(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    whole = split(tokenizer, texts(100), tmp_path)
    part = whole.at_most(5)
    assert [row.at for row in part.source.rows()] == [1, 25, 50, 75, 100]
    assert len(part) == part.encoded.rows == 5
    assert part.source.where == "memory"


def test_more_than_there_are_is_all_of_them(tokenizer: Tokenizer, tmp_path: Path) -> None:
    whole = split(tokenizer, texts(10), tmp_path)
    assert whole.at_most(None) is whole.at_most(10) is whole.at_most(11) is whole


@pytest.mark.parametrize("make", [texts, questions])
def test_halves_share_no_row_and_leave_none_out(
    tokenizer: Tokenizer, tmp_path: Path, make: type
) -> None:
    whole = split(tokenizer, make(21), tmp_path)
    one, other = whole.halves()
    assert [row.at for row in one.source.rows()] == list(range(1, 22, 2))
    assert [row.at for row in other.source.rows()] == list(range(2, 22, 2))
    assert one.encoded.rows == 11
    assert other.encoded.rows == 10
    assert len(one) + len(other) == len(whole)


@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.sets(st.integers(0, 19), min_size=1), st.booleans())
def test_a_part_is_what_encoding_its_rows_alone_gives(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, chosen: set[int], long: bool
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    rows = questions(20) if long else texts(20)
    numbers = np.array(sorted(chosen))
    part = split(tokenizer, rows, cache).part(numbers)
    direct = split(tokenizer, tuple(rows[number] for number in numbers), cache)
    assert list(part.source.rows()) == list(direct.source.rows())
    assert len(part) == len(direct)
    batch, expected = (columns(s.encoded, np.arange(len(s))) for s in (part, direct))
    for name, column in expected.items():
        np.testing.assert_array_equal(batch[name], column)


def test_a_part_keeps_all_windows_of_its_rows(tokenizer: Tokenizer, tmp_path: Path) -> None:
    whole = split(tokenizer, questions(20), tmp_path)
    part = whole.part(np.array([4, 7]))
    row = whole.encoded.dense["row"]
    assert len(part) == np.isin(row, [4, 7]).sum() > 2
    assert part.encoded.rows == 2


def test_a_part_is_named_by_its_rows(tokenizer: Tokenizer, tmp_path: Path) -> None:
    whole = split(tokenizer, texts(10), tmp_path)
    even, odd = whole.halves()
    again, _ = whole.halves()
    names = [each.source.fingerprint() for each in (whole, even, odd, whole.at_most(2))]
    assert len(set(names)) == 4
    assert again.source.fingerprint() == even.source.fingerprint()


@given(st.integers(2, 50), st.floats(0.01, 0.99))
def test_what_is_held_out_is_missing_from_the_rest(there: int, share: float) -> None:
    rest, held = hold_out(Memory(texts(there)), share)
    parts = [[row.at for row in source.rows()] for source in (rest, held)]
    assert sorted(parts[0] + parts[1]) == [row.at for row in texts(there)]
    assert len(parts[1]) == min(max(1, round(share * there)), there - 1)
    assert rest.fingerprint() != held.fingerprint()
