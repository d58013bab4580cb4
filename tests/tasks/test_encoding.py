import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from memory import Memory
from taskmix.errors import UserError
from taskmix.files import default_cache
from taskmix.tasks import encoding as module
from taskmix.tasks.encoding import encode
from taskmix.tasks.kinds import Choose, Classify, Kind, Regress, Span, Tag
from taskmix.tasks.rows import Answer, ChoiceRow, ImageRow, QuestionRow, Row, TextRow, WordsRow
from taskmix.tasks.tokenizer import Tokenizer

SENTENCE = "the cat sat on a mat and saw one small brown dog run far away"
WORDS = SENTENCE.split()


def columns(split, items):  # type: ignore[no-untyped-def]
    """All columns of some items: what the encoder reads, and the targets."""
    inputs, targets = split.batch(items)
    return inputs | targets


def text(rng: np.random.Generator, longest: int = 30) -> str:
    return " ".join(rng.choice(WORDS, size=rng.integers(1, longest)))


def texts(count: int, seed: int = 1) -> tuple[TextRow, ...]:
    """Single texts and pairs of many lengths."""
    rng = np.random.default_rng(seed)
    return tuple(
        TextRow(at, text(rng), text(rng) if at % 3 else None, ("no", "yes")[at % 2])
        for at in range(1, count + 1)
    )


def questions(count: int) -> tuple[QuestionRow, ...]:
    rng = np.random.default_rng(2)
    contexts = [text(rng, 80) for _ in range(count)]
    return tuple(
        QuestionRow(at, "who sat", context, (Answer(context.split()[-1], len(context) - 3),))
        for at, context in enumerate((c + " cat" for c in contexts), 1)
    )


def choices(count: int) -> tuple[ChoiceRow, ...]:
    rng = np.random.default_rng(3)
    return tuple(
        ChoiceRow(at, text(rng), tuple(text(rng) for _ in range(1 + at % 4)), 0)
        for at in range(1, count + 1)
    )


CLASSIFY = Classify(("no", "yes"))
CASES: list[tuple[Kind, tuple[Row, ...]]] = [
    (CLASSIFY, texts(40)),
    (Span(stride=8), questions(40)),
    (Choose(), choices(40)),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([SENTENCE] * 20, vocabulary=200, max_length=24)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, column in one.items():
        np.testing.assert_array_equal(column, other[name], err_msg=name)


def test_a_batch_is_what_the_tokenizer_gives_row_by_row(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rows = texts(50)
    split = encode(CLASSIFY, Memory(rows), tokenizer, tmp_path)
    items = np.array([7, 3, 40, 3, 0])
    batch = columns(split, items)
    expected = tokenizer.encode([rows[i].text for i in items], [rows[i].pair for i in items])
    longest = max(len(encoding.ids) for encoding in expected)
    assert batch["input_ids"].shape == (5, longest)
    for row, encoding in enumerate(expected):
        fill = [0] * (longest - len(encoding.ids))
        assert batch["input_ids"][row].tolist() == encoding.ids + fill
        assert batch["token_type_ids"][row].tolist() == encoding.type_ids + fill
        assert batch["attention_mask"][row].tolist() == encoding.attention_mask + fill
    assert batch["labels"].tolist() == [rows[i].label == "yes" for i in items]


def test_padding_is_the_tokenizers_own(tmp_path: Path, tokenizer: Tokenizer) -> None:
    other = Tokenizer(tokenizer.backend, 24, pad_id=4)
    split = encode(CLASSIFY, Memory(texts(20)), other, tmp_path)
    batch = columns(split, np.arange(20))
    assert (batch["input_ids"][batch["attention_mask"] == 0] == 4).all()
    assert (batch["attention_mask"] == 0).any()


def test_columns_are_read_from_the_disk_when_a_batch_asks_for_them(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    split = encode(CLASSIFY, Memory(texts(20)), tokenizer, tmp_path)
    assert isinstance(split.ragged["input_ids"], np.memmap)
    assert isinstance(split.dense["labels"], np.memmap)
    assert split.ragged["input_ids"].dtype == np.uint16


@dataclass(frozen=True)
class Once(Memory):
    """A source whose rows may be read only by the first who asks."""

    def rows(self) -> Iterator[Row]:
        raise AssertionError("the rows were read again")


def test_a_kind_that_was_typed_into_an_interpreter_is_one_sentence(tokenizer: Tokenizer) -> None:
    typed: dict[str, type[Classify]] = {"Classify": Classify}
    exec("class Typed(Classify):\n    __module__ = '__main__'", typed)
    with pytest.raises(UserError, match="kind __main__:Typed: expected a class in a file"):
        encode(typed["Typed"](("a", "b")), Memory(()), tokenizer)


def test_the_second_time_the_rows_are_not_read(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = texts(20)
    first = encode(CLASSIFY, Memory(rows), tokenizer, tmp_path)
    second = encode(CLASSIFY, Once(rows), tokenizer, tmp_path)
    same(columns(first, np.arange(20)), columns(second, np.arange(20)))


def folders(cache: Path) -> int:
    return len(list((cache / "encoded").iterdir()))


def test_another_content_label_set_or_tokenizer_has_another_place(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rows = texts(20)
    shorter = Tokenizer(tokenizer.backend, 16)
    for kind, source, words in [
        (CLASSIFY, Memory(rows), tokenizer),
        (CLASSIFY, Memory(rows[:-1]), tokenizer),
        (Classify(("yes", "no")), Memory(rows), tokenizer),
        (CLASSIFY, Memory(rows), shorter),
    ]:
        before = folders(tmp_path) if (tmp_path / "encoded").exists() else 0
        encode(kind, source, words, tmp_path)
        assert folders(tmp_path) == before + 1


def test_what_fitting_finds_does_not_change_the_place(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = tuple(TextRow(at, "a cat", label=float(at)) for at in range(1, 9))
    split = encode(Regress(), Memory(rows), tokenizer, tmp_path)
    fitted = Regress().fit(split)
    assert fitted != Regress()
    encode(fitted, Once(rows), tokenizer, tmp_path)


def test_chunks_join_without_a_seam(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (kind, rows) in enumerate(CASES):
        whole = encode(kind, Memory(rows), tokenizer, tmp_path / f"whole-{number}")
        monkeypatch.setattr(module, "CHUNK", 7)
        pieces = encode(kind, Memory(rows), tokenizer, tmp_path / f"pieces-{number}")
        monkeypatch.undo()
        assert (pieces.items, pieces.rows) == (whole.items, whole.rows)
        same(columns(pieces, np.arange(len(whole))), columns(whole, np.arange(len(whole))))
        if "row" in whole.dense:
            np.testing.assert_array_equal(pieces.dense["row"], whole.dense["row"])


def test_chunks_with_other_columns_are_an_error_and_no_mixture(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)
    rows = (*texts(2), TextRow(3, "a cat", label="no", group="only this one has a group"))
    with pytest.raises(ValueError, match="in every chunk"):
        encode(CLASSIFY, Memory(rows), tokenizer, tmp_path)
    assert folders(tmp_path) == 0


def test_rows_are_counted_as_they_are_read(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    told: list[int] = []
    encode(CLASSIFY, Memory(texts(20)), tokenizer, tmp_path, told.append)
    assert told == [8, 16, 20]


@dataclass(frozen=True)
class Breaking(Memory):
    def rows(self) -> Iterator[Row]:
        yield from self.content
        raise KeyboardInterrupt


def test_an_interrupted_reading_leaves_nothing_behind(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 5)
    rows = texts(20)
    with pytest.raises(KeyboardInterrupt):
        encode(CLASSIFY, Breaking(rows), tokenizer, tmp_path)
    assert folders(tmp_path) == 0
    assert len(encode(CLASSIFY, Memory(rows), tokenizer, tmp_path)) == 20


def test_a_bad_row_leaves_nothing_behind(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = (*texts(5), TextRow(6, "a cat", label="maybe"))
    with pytest.raises(UserError, match="memory, row 6: label 'maybe' is not one of: no, yes"):
        encode(CLASSIFY, Memory(rows), tokenizer, tmp_path)
    assert folders(tmp_path) == 0


def test_a_split_without_rows_is_one_sentence(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="memory: expected at least one row, found none"):
        encode(CLASSIFY, Memory(()), tokenizer, tmp_path)


def test_two_who_encode_the_same_at_once_both_get_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = texts(50)

    @dataclass(frozen=True)
    class Slow(Memory):
        """While it is being read, somebody else finishes the same."""

        def rows(self) -> Iterator[Row]:
            encode(CLASSIFY, Memory(rows), tokenizer, tmp_path)
            return iter(self.content)

    late = encode(CLASSIFY, Slow(rows), tokenizer, tmp_path)
    assert folders(tmp_path) == 1
    early = encode(CLASSIFY, Once(rows), tokenizer, tmp_path)
    same(columns(late, np.arange(50)), columns(early, np.arange(50)))


@pytest.mark.parametrize(("kind", "rows"), CASES, ids=lambda case: getattr(case, "name", ""))
def test_taking_items_gives_the_batches_that_the_whole_split_gives(
    tokenizer: Tokenizer, tmp_path: Path, kind: Kind, rows: tuple[Row, ...]
) -> None:
    whole = encode(kind, Memory(rows), tokenizer, tmp_path)
    items = np.array([5, 2, 11, 30])
    part = whole.take(items)
    assert len(part) == 4
    same(columns(part, np.arange(4)), columns(whole, items))
    same(columns(part.take(np.array([3, 1])), np.arange(2)), columns(whole, items[[3, 1]]))
    np.testing.assert_array_equal(part.lengths(), whole.lengths()[items])


def test_taking_nothing_gives_an_empty_split(tokenizer: Tokenizer, tmp_path: Path) -> None:
    whole = encode(CLASSIFY, Memory(texts(20)), tokenizer, tmp_path)
    assert len(whole.take(np.array([], dtype=np.int64))) == 0


def test_an_item_of_several_sequences_comes_whole(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = choices(12)
    split = encode(Choose(), Memory(rows), tokenizer, tmp_path)
    items = np.array([9, 2])
    batch = columns(split, items)
    pairs = [(rows[i].text, choice) for i in items for choice in rows[i].choices]
    assert batch["item"].tolist() == [n for n, i in enumerate(items) for _ in rows[i].choices]
    for row, encoding in zip(
        batch["input_ids"], tokenizer.encode(*zip(*pairs, strict=True)), strict=True
    ):
        assert row[: len(encoding.ids)].tolist() == encoding.ids
    assert split.lengths()[9] == batch["attention_mask"][batch["item"] == 0].sum()


def test_pictures_need_no_tokenizer(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = tuple(
        ImageRow(at, rng.integers(0, 255, (4, 4), dtype=np.uint8), "no") for at in range(1, 6)
    )
    split = encode(CLASSIFY, Memory(rows), None, tmp_path)
    batch = columns(split, np.array([4, 0]))
    np.testing.assert_array_equal(batch["pixels"], np.stack([rows[4].pixels, rows[0].pixels]))
    assert split.lengths().tolist() == [1] * 5
    same(columns(split.take(np.array([4, 0])), np.arange(2)), batch)


def test_texts_for_a_model_of_pictures_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="these are texts, but the model reads images"):
        encode(CLASSIFY, Memory(texts(3)), None, tmp_path)


def test_the_cache_folder_is_the_environments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TASKMIX_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("TASKMIX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "taskmix"


def test_what_is_on_disk_explains_itself(tokenizer: Tokenizer, tmp_path: Path) -> None:
    split = encode(CLASSIFY, Memory(texts(20)), tokenizer, tmp_path)
    [folder] = (tmp_path / "encoded").iterdir()
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["items"], meta["rows"]) == (20, 20)
    assert set(meta["columns"]) == {"labels", "cut", "input_ids", "second", "offsets"}
    assert (meta["cut"], meta["lost"]) == (split.cut, 0)
    assert (folder / "input_ids.bin").stat().st_size == 2 * split.offsets[-1]


def test_rows_that_the_tokenizer_cuts_are_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    # 24 tokens: 22 words of a text, or 21 of a pair, beside the special ones.
    lengths = [(1, 0), (22, 0), (23, 0), (11, 10), (11, 11), (3, 40)]
    rows = tuple(
        TextRow(at, "cat " * words, "cat " * pair if pair else None, ("no", "yes")[at % 2])
        for at, (words, pair) in enumerate(lengths, 1)
    )
    split = encode(CLASSIFY, Memory(rows), tokenizer, tmp_path)
    assert split.dense["cut"].tolist() == [False, False, True, False, True, True]
    assert (split.cut, split.lost) == (3, 0)
    assert split.take(np.array([1, 2, 5])).cut == 2
    assert encode(CLASSIFY, Once(rows), tokenizer, tmp_path).cut == 3
    assert "cut" not in split.batch(np.arange(3))


def test_a_choice_that_is_cut_is_a_row_that_is_cut(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = (
        ChoiceRow(1, "cat", ("cat", "cat " * 40, "mat"), 0),
        ChoiceRow(2, "cat", ("cat", "mat"), 0),
        ChoiceRow(3, "cat " * 40, ("cat", "mat"), 1),
    )
    split = encode(Choose(), Memory(rows), tokenizer, tmp_path)
    assert split.dense["cut"].tolist() == [True, False, True]
    assert split.cut == 2


def test_words_that_are_cut_off_are_counted_by_sentence(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rows = tuple(
        WordsRow(at, ("cat",) * words, ("O",) * words) for at, words in enumerate((22, 23, 60), 1)
    )
    split = encode(Tag(("O", "B-x")), Memory(rows), tokenizer, tmp_path)
    assert split.cut == 2


def test_answers_that_no_window_holds_are_lost(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)
    context = "cat " * 60
    rows = (
        QuestionRow(1, "who", context, (Answer("cat " * 40, 0), Answer("cat cat", 4))),
        QuestionRow(2, "who", context, (Answer("cat " * 40, 0),)),
        QuestionRow(3, "who", context, ()),
        QuestionRow(4, "sat " * 40, context, (Answer("cat " * 30, 0),)),
        QuestionRow(5, "who", context),
    )
    split = encode(Span(stride=8), Memory(rows), tokenizer, tmp_path)
    assert (split.cut, split.lost, split.rows) == (1, 2, 5)
    row = split.dense["row"]
    part = split.take(np.flatnonzero(row != 1))
    assert (part.cut, part.lost, part.rows) == (1, 1, 4)


def test_the_rows_of_a_part_are_numbered_anew(tokenizer: Tokenizer, tmp_path: Path) -> None:
    split = encode(Span(stride=8), Memory(questions(12)), tokenizer, tmp_path)
    row = split.dense["row"]
    items = np.concatenate([np.flatnonzero(row == number) for number in (9, 2, 5)])
    counts = [int((row == number).sum()) for number in (9, 2, 5)]
    assert split.take(items).dense["row"].tolist() == np.repeat([0, 1, 2], counts).tolist()
