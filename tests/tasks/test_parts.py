import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import Memory
from taskmix.errors import UserError
from taskmix.tasks.encoding import encode
from taskmix.tasks.kinds import Classify, Span
from taskmix.tasks.kinds.base import Kind
from taskmix.tasks.metrics import EXACT_GROUPS, EXACT_MATCH, F1, TOKEN_F1
from taskmix.tasks.parts import Split, hold_out, some_rows
from taskmix.tasks.rows import Answer, ChoiceRow, ImageRow, QuestionRow, Row, TextRow
from taskmix.tasks.tokenizer import Tokenizer


def columns(split, items):  # type: ignore[no-untyped-def]
    """All columns of some items: what the encoder reads, and the targets."""
    inputs, targets = split.batch(items)
    return inputs | targets


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


def answers(count: int) -> tuple[TextRow, ...]:
    """As in MultiRC: passages of two questions, questions of one to five answers."""
    rows: list[TextRow] = []
    for question in range(count):
        passage = f"passage {question // 2}"
        rows.extend(
            TextRow(
                1 + question // 2,
                passage,
                "cat " * (answer + 1),
                ("no", "yes")[(question + answer) % 2],
                group=f"{passage}/{question}",
                passage=passage,
            )
            for answer in range(1 + question * 3 % 5)
        )
    return tuple(rows)


def kind_of(rows: tuple[Row, ...]) -> Kind:
    return Classify(("no", "yes")) if isinstance(rows[0], TextRow) else Span(stride=4)


def split(tokenizer: Tokenizer, rows: tuple[Row, ...], cache: Path) -> Split:
    return Split(encode(kind_of(rows), Memory(rows), tokenizer, cache), Memory(rows))


def test_at_most_so_many_rows_are_spread_over_the_split(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    whole = split(tokenizer, texts(100), tmp_path)
    part = whole.at_most(5)
    assert [row.at for row in part.source.rows()] == [1, 25, 50, 75, 100]
    assert len(part) == part.items.rows == 5
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
    assert one.items.rows == 11
    assert other.items.rows == 10
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
    batch, expected = (columns(s.items, np.arange(len(s))) for s in (part, direct))
    for name, column in expected.items():
        np.testing.assert_array_equal(batch[name], column)


def test_a_part_keeps_all_windows_of_its_rows(tokenizer: Tokenizer, tmp_path: Path) -> None:
    whole = split(tokenizer, questions(20), tmp_path)
    part = whole.part(np.array([4, 7]))
    row = whole.items.dense["row"]
    assert len(part) == np.isin(row, [4, 7]).sum() > 2
    assert part.items.rows == 2


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


MAKE = {"texts": texts, "questions": questions, "answers": answers}
every_make = pytest.mark.parametrize("make", MAKE.values(), ids=list(MAKE))


def same(one: Split, other: Split) -> None:
    """Two splits hold the same rows and the same columns."""
    assert list(one.source.rows()) == list(other.source.rows())
    assert (len(one), one.items.rows) == (len(other), other.items.rows)
    for name, column in other.items.dense.items():
        np.testing.assert_array_equal(one.items.dense[name], column, err_msg=name)
    for name, column in other.items.ragged.items():
        np.testing.assert_array_equal(one.items.ragged[name], column, err_msg=name)
    np.testing.assert_array_equal(one.items.offsets, other.items.offsets)


@every_make
@settings(max_examples=25, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_part_of_a_part_is_the_composed_part(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, make: type, data: st.DataObject
) -> None:
    rows = make(20)
    whole = split(tokenizer, rows, tmp_path_factory.getbasetemp() / "composed")
    outer = np.array(sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))))
    inner = np.array(sorted(data.draw(st.sets(st.integers(0, len(outer) - 1), min_size=1))))
    twice, once = whole.part(outer).part(inner), whole.part(outer[inner])
    same(twice, once)
    assert twice.source.fingerprint() == once.source.fingerprint()


def guesses(split: Split, kind: Kind) -> list[np.ndarray]:
    """Raw predictions that depend on an item's tokens alone, so that a part's can be compared."""
    encoded = split.items
    bounds = zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)
    sums = [int(encoded.ragged["input_ids"][a:b].astype(int).sum()) for a, b in bounds]
    if isinstance(kind, Classify):
        return [np.array([0.5, number % 7 / 6]) for number in sums]
    first = encoded.dense["context"]
    return [
        np.array([a, min(a + n % 3, b - 1), -(n % 5), -9.0])
        for n, (a, b) in zip(sums, first.tolist(), strict=True)
    ]


@every_make
@settings(max_examples=25, derandomize=True, deadline=None)
@given(data=st.data())
def test_scores_on_a_part_of_a_part_are_those_of_its_rows_encoded_alone(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, make: type, data: st.DataObject
) -> None:
    rows = make(20)
    kind = kind_of(rows)
    metrics = (F1, EXACT_GROUPS) if isinstance(kind, Classify) else (EXACT_MATCH, TOKEN_F1)
    cache = tmp_path_factory.getbasetemp() / "scored"
    most = data.draw(st.integers(12, len(rows)))
    part = split(tokenizer, rows, cache).at_most(most).halves()[data.draw(st.integers(0, 1))]
    direct = split(tokenizer, tuple(part.source.rows()), cache)
    scores = []
    for each in (part, direct):
        scored = kind.scored(guesses(each, kind), each.items, each.source.rows())
        values = (scored.predicted, scored.expected, scored.groups)
        scores.append([metric.compute(*values) for metric in metrics])
    assert scores[0] == scores[1]


def by(rows: Iterator[Row], name: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[getattr(row, name)] = counts.get(getattr(row, name), 0) + 1
    return counts


@settings(max_examples=40, derandomize=True, deadline=None)
@given(most=st.integers(1, 150))
def test_groups_are_taken_whole_and_are_at_most_so_many_rows(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, most: int
) -> None:
    rows = answers(50)
    sizes = by(iter(rows), "group")
    whole = split(tokenizer, rows, tmp_path_factory.getbasetemp() / "groups")
    for source in (whole.at_most(most).source, some_rows(Memory(rows), most)):
        found = by(source.rows(), "group")
        assert found == {group: sizes[group] for group in found}
        total = sum(found.values())
        assert total <= most or len(found) == 1
        assert total >= most - 12 or most >= len(rows)


def test_a_group_larger_than_asked_for_is_taken_alone() -> None:
    rows = tuple(
        TextRow(at, "cat", label="no", group="first" if at < 900 else str(at))
        for at in range(1, 1000)
    )
    assert by(some_rows(Memory(rows), 5).rows(), "group") == {"first": 899}


def test_halves_share_no_group(tokenizer: Tokenizer, tmp_path: Path) -> None:
    one, other = split(tokenizer, answers(31), tmp_path).halves()
    found = [by(half.source.rows(), "group") for half in (one, other)]
    assert not found[0].keys() & found[1].keys()
    assert [len(each) for each in found] == [16, 15]
    assert len(one) + len(other) == len(answers(31))


@pytest.mark.parametrize("count", [1, 2])
def test_what_cannot_be_halved_is_one_sentence(
    tokenizer: Tokenizer, tmp_path: Path, count: int
) -> None:
    rows = tuple(TextRow(at, "cat", label="no", group="one") for at in range(1, count + 1))
    with pytest.raises(UserError, match=rf"memory: cannot be halved: .* one group of {count}\."):
        split(tokenizer, rows, tmp_path).halves()


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.floats(0.01, 0.99), st.integers(3, 60))
def test_no_passage_is_on_both_sides_of_what_is_held_out(share: float, count: int) -> None:
    rows = answers(count)
    rest, held = hold_out(Memory(rows), share)
    there = len(by(iter(rows), "passage"))
    sides = [by(source.rows(), "passage") for source in (rest, held)]
    assert not sides[0].keys() & sides[1].keys()
    assert len(sides[1]) == min(max(1, round(share * there)), there - 1)
    assert sum(map(sum, (side.values() for side in sides))) == len(rows)


def test_contexts_and_texts_of_choices_are_passages() -> None:
    asked = tuple(QuestionRow(at, str(at), f"context {at // 4}", ()) for at in range(40))
    chosen = tuple(ChoiceRow(at, f"text {at // 4}", (str(at), ""), 0) for at in range(40))
    for rows, name in ((asked, "context"), (chosen, "text")):
        rest, held = hold_out(Memory(rows), 0.3)
        sides = [by(source.rows(), name) for source in (rest, held)]
        assert [len(side) for side in sides] == [7, 3]
        assert all(count == 4 for side in sides for count in side.values())


def test_rows_without_a_passage_stand_beside_those_with_one() -> None:
    rows = tuple(TextRow(at, "cat", passage="shared" if at in (3, 7) else "") for at in range(10))
    rest, held = hold_out(Memory(rows), 0.5)
    sides = [{row.at for row in source.rows()} for source in (rest, held)]
    assert sorted([*sides[0], *sides[1]]) == list(range(10))
    assert any({3, 7} <= side for side in sides)


def test_rows_of_one_passage_cannot_be_held_out() -> None:
    rows = tuple(QuestionRow(at, str(at), "the context", ()) for at in range(4))
    with pytest.raises(UserError, match=r"memory: none .* held out: found 1 passage with 4 rows"):
        hold_out(Memory(rows), 0.5)[0].rows()


@dataclass(frozen=True)
class Many:
    """Rows made as they are asked for."""

    count: int
    passages: bool
    where: str = "many"

    def rows(self) -> Iterator[Row]:
        picture = ImageRow(1, np.zeros((1, 1), dtype=np.uint8))
        for number in range(self.count):
            yield QuestionRow(1, "who", str(number // 3)) if self.passages else picture

    def skips(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        return f"{self.count}-{self.passages}"


@pytest.mark.parametrize(("passages", "bytes_a_row"), [(False, 10), (True, 80)])
def test_holding_out_takes_a_few_bytes_a_row(passages: bool, bytes_a_row: int) -> None:
    source = Many(30_000, passages)
    tracemalloc.start()
    try:
        rest, held = hold_out(source, 0.2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30_000 * bytes_a_row + 300_000
    assert sum(1 for _ in rest.rows()) + sum(1 for _ in held.rows()) == 30_000
