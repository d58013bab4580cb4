"""Tag, span and choose: many decisions, windows or sequences a row."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import Memory
from taskmix.errors import UserError
from taskmix.tasks.encoding import Encoded, encode
from taskmix.tasks.kinds import Choose, Kind, Span, Tag
from taskmix.tasks.parts import Split
from taskmix.tasks.rows import Answer, ChoiceRow, QuestionRow, WordsRow
from taskmix.tasks.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["the cat sat on a mat with one dog"] * 9, 200, max_length=12)
Item = dict[str, torch.Tensor]


def columns(split, items):  # type: ignore[no-untyped-def]
    """All columns of some items: what the encoder reads, and the targets."""
    inputs, targets = split.batch(items)
    return inputs | targets


def split_of(kind: Kind, rows: list[Any], cache: Path) -> Split:
    source = Memory(tuple(rows), "file")
    return Split(encode(kind, source, TOKENIZER, cache), source)


def all_of(split: Encoded) -> Item:
    return {
        name: torch.from_numpy(np.array(column))
        for name, column in columns(split, np.arange(len(split))).items()
    }


NER = Tag(("O", "B-pet", "I-pet"))


def test_a_word_bears_its_tag_on_its_first_piece_alone() -> None:
    row = WordsRow(1, ("the", "dogmat", "sat"), ("O", "B-pet", "O"))
    columns = NER.encode([row], TOKENIZER, "file")
    [encoding] = TOKENIZER.encode_words([row.words])
    [tags], [words] = columns.ragged["tags"], columns.ragged["words"]
    assert encoding.word_ids.count(1) > 1
    for token, word in enumerate(encoding.word_ids):
        first = word is not None and encoding.word_ids.index(word) == token
        assert words[token] == (word if first else -1)
        assert tags[token] == ([0, 1, 0][word] if first else -100)


def test_the_loss_of_tags_is_the_mean_over_words() -> None:
    p = torch.tensor([[[0.2, 0.3, 0.5], [0.7, 0.2, 0.1], [0.3, 0.3, 0.4]], [[0.1, 0.8, 0.1]] * 3])
    batch = {"tags": torch.tensor([[-100, 0, -100], [-100, 1, 2]])}
    expected = -(math.log(0.7) + math.log(0.8) + math.log(0.1)) / 3
    assert float(NER.loss(p.log(), batch)) == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(NER.distribution(p.log(), batch), p[[0, 1, 1], [1, 1, 2]])
    assert NER.owners(batch).tolist() == [0, 1, 1]


def test_a_batch_without_words_costs_nothing() -> None:
    batch = {"tags": torch.full((2, 3), -100)}
    assert float(NER.loss(torch.randn(2, 3, 3), batch)) == 0


def right_tags(split: Encoded) -> list[np.ndarray]:
    """For each sentence the tags of its tokens, as a model that knows them would predict."""
    bounds = zip(split.offsets[:-1], split.offsets[1:], strict=True)
    return [np.maximum(split.ragged["tags"][a:b], 0).astype(np.int64) for a, b in bounds]


def test_words_that_were_cut_off_get_the_usual_tag_and_still_count(tmp_path: Path) -> None:
    words = ("cat", "sat") * 10
    rows = [WordsRow(1, words, ("B-pet", "O") * 10), WordsRow(2, ("the", "mat"), ("O", "O"))]
    split = split_of(NER, rows, tmp_path)
    kind = NER.fit(split.items)
    assert kind.frequent == "O"
    scored = kind.scored(right_tags(split.items), split.items, split.source.rows())
    assert scored.expected == [["B-pet", "O"] * 10, ["O", "O"]]
    seen = len(columns(split.items, np.array([0]))["input_ids"][0]) - 2
    assert scored.predicted[0] == (["B-pet", "O"] * 10)[:seen] + ["O"] * (20 - seen)
    assert seen < 20


def test_a_word_that_the_tokenizer_drops_gets_the_usual_tag(tmp_path: Path) -> None:
    rows = [WordsRow(1, ("the", "\u200d", "cat"), ("O", "O", "B-pet"))]
    split = split_of(NER, rows, tmp_path)
    answers = NER.answers(right_tags(split.items), split.items, split.source.rows())
    assert answers == [["O", "O", "B-pet"]]


def test_bad_tags_name_file_and_row() -> None:
    with pytest.raises(UserError, match="file, row 3: tag 'B-cat' is not one of: O, B-pet, I-pet"):
        NER.encode([WordsRow(3, ("cat",), ("B-cat",))], TOKENIZER, "file")
    with pytest.raises(UserError, match="file, row 3: expected a tag for each of 2 words, found 1"):
        NER.encode([WordsRow(3, ("a", "cat"), ("O",))], TOKENIZER, "file")


def test_one_tag_alone_cannot_be_learned(tmp_path: Path) -> None:
    split = split_of(NER, [WordsRow(1, ("a", "cat"), ("O", "O"))], tmp_path)
    with pytest.raises(UserError, match="fewer than two different tags"):
        NER.fit(split.items)


SPAN = Span(stride=3)
CONTEXT = "the cat sat on a mat with one dog the mat sat on a cat"


def asked(answer: str, context: str = CONTEXT, at: int = 1) -> QuestionRow:
    return QuestionRow(at, "one", context, (Answer(answer, context.index(answer)),))


def knowing(split: Encoded) -> torch.Tensor:
    """The logits of a model that knows the answers."""
    batch = all_of(split)
    logits = torch.zeros(*batch["input_ids"].shape, 2)
    windows = torch.arange(len(split))
    logits[windows, batch["starts"], 0] = 9
    logits[windows, batch["ends"], 1] = 9
    return logits


def answers_of(kind: Span, split: Split, logits: torch.Tensor) -> list[str]:
    raw = kind.predictions(logits, all_of(split.items))
    return kind.answers(raw, split.items, split.source.rows())


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 4), st.integers(5, 45)),
        min_size=1,
        max_size=4,
    )
)
def test_an_answer_is_mapped_to_tokens_and_back_wherever_it_stands(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[int, int, int]]
) -> None:
    rows = []
    for at, (first, count, length) in enumerate(places, 1):
        words = (CONTEXT.split() * 4)[:length]
        first = min(first, length - 1)
        start = len(" ".join(words[:first])) + (first > 0)
        answer = " ".join(words[first : first + count])
        rows.append(QuestionRow(at, "one", " ".join(words), (Answer(answer, start),)))
    split = split_of(SPAN, rows, tmp_path_factory.mktemp("cache"))
    found = answers_of(SPAN, split, knowing(split.items))
    whole = {int(row) for row in split.items.dense["row"][split.items.dense["ends"] > 0]}
    for number, row in enumerate(rows):
        if number in whole:  # an answer longer than what windows share may be cut by all of them
            assert found[number] == row.answers[0].text
    assert len(whole) == len(rows) or any(len(r.answers[0].text.split()) > 3 for r in rows)


def test_answers_with_punctuation_and_letters_that_change_length_come_back(tmp_path: Path) -> None:
    tokenizer = TOKENIZER
    context = "Ĳssel, the CAT\u200d sat… on “a mat”."
    rows = [
        asked(each, context, at) for at, each in enumerate(["CAT\u200d sat", "a mat", "Ĳssel"], 1)
    ]
    source = Memory(tuple(rows), "file")
    wide = Tokenizer(tokenizer.backend, 64)
    split = Split(encode(SPAN, source, wide, tmp_path), source)
    assert answers_of(SPAN, split, knowing(split.items)) == ["CAT\u200d sat", "a mat", "Ĳssel"]


def test_windows_without_the_answer_point_at_the_first_token(tmp_path: Path) -> None:
    split = split_of(SPAN, [asked("dog")], tmp_path).items
    holds = split.dense["ends"] > 0
    assert 0 < holds.sum() < len(split)
    assert (split.dense["starts"][~holds] == 0).all()
    assert (split.dense["row"] == 0).all()


def test_the_first_answer_that_a_window_holds_whole_is_its_target(tmp_path: Path) -> None:
    far = Answer("cat", CONTEXT.rindex("cat"))
    near = Answer("cat", CONTEXT.index("cat"))
    split = split_of(SPAN, [QuestionRow(1, "one", CONTEXT, (far, near))], tmp_path)
    assert (split.items.dense["ends"][[0, -1]] > 0).all()
    assert answers_of(SPAN, split, knowing(split.items)) == ["cat"]


def test_the_loss_of_a_span_is_the_mean_of_start_and_end_over_what_may_answer() -> None:
    batch = {
        "starts": torch.tensor([3]),
        "ends": torch.tensor([4]),
        "context": torch.tensor([[3, 5]]),
    }
    logits = torch.zeros(1, 6, 2)
    logits[0, 3, 0] = math.log(2)
    logits[0, [1, 5]] = 50.0  # the question and the last special token cannot be answers
    expected = -(math.log(2 / 4) + math.log(1 / 3)) / 2
    assert float(SPAN.loss(logits, batch)) == pytest.approx(expected, rel=1e-5)
    distribution = SPAN.distribution(logits, batch)
    torch.testing.assert_close(distribution[0], torch.tensor([0.25, 0, 0, 0.5, 0.25, 0]))
    assert SPAN.owners(batch).tolist() == [0, 0]


def slow_best(
    starts: np.ndarray, ends: np.ndarray, context: range, longest: int
) -> tuple[int, int]:
    spans = [(starts[i] + ends[j], i, j) for i in context for j in context if i <= j < i + longest]
    return max(spans)[1:]


def test_the_best_span_is_the_best_of_all_that_are_not_too_long() -> None:
    rng = np.random.default_rng(1)
    for longest in (1, 3, 30):
        kind = Span(longest=longest)
        logits = torch.from_numpy(rng.normal(size=(8, 20, 2))).float()
        context = torch.tensor([[5, 18]] * 8)
        raw = kind.predictions(logits, {"context": context})
        for window, (first, last, score, none) in enumerate(raw):
            starts, ends = logits[window].numpy().T
            assert (first, last) == slow_best(starts, ends, range(5, 18), longest)
            inside = [0, *range(5, 18)]
            total = sum(float(torch.logsumexp(logits[window, inside, k], 0)) for k in (0, 1))
            assert score == pytest.approx(starts[int(first)] + ends[int(last)] - total, abs=1e-4)
            assert none == pytest.approx(starts[0] + ends[0] - total, abs=1e-4)


def test_no_answer_is_given_only_where_it_is_allowed_and_likelier_in_every_window(
    tmp_path: Path,
) -> None:
    rows = [asked("dog"), QuestionRow(2, "one", CONTEXT, ())]
    split = split_of(SPAN, rows, tmp_path)
    logits = knowing(split.items)
    allowed = Span(stride=3, no_answer=True)
    assert answers_of(allowed, split, logits) == ["dog", ""]
    assert answers_of(SPAN, split, logits)[1] != ""
    scored = allowed.scored(
        allowed.predictions(logits, all_of(split.items)), split.items, split.source.rows()
    )
    assert scored.expected == [("dog",), ()]
    assert allowed.baseline(split.items, split.items, split.source.rows()).predicted == ["", ""]


def test_an_empty_context_has_no_answer(tmp_path: Path) -> None:
    split = split_of(SPAN, [QuestionRow(1, "one", "", ()), asked("dog", at=2)], tmp_path)
    assert answers_of(SPAN, split, knowing(split.items)) == ["", "dog"]


def test_a_part_of_a_span_split_is_answered_from_its_own_rows(tmp_path: Path) -> None:
    rows = [asked(word, at=at) for at, word in enumerate(["cat", "dog", "with", "on a"], 1)]
    part = split_of(SPAN, rows, tmp_path).part(np.array([1, 3]))
    assert answers_of(SPAN, part, knowing(part.items)) == ["dog", "on a"]


def test_spans_need_an_answer_somewhere_and_sound_numbers(tmp_path: Path) -> None:
    split = split_of(SPAN, [QuestionRow(1, "one", CONTEXT, ())], tmp_path)
    with pytest.raises(UserError, match="no window of the training split holds an answer"):
        SPAN.fit(split.items)
    with pytest.raises(UserError, match="stride: expected at least 0, found -1"):
        Span(stride=-1)
    with pytest.raises(UserError, match="longest: expected at least 1, found 0"):
        Span(longest=0)


CHOOSE = Choose()


def test_the_loss_of_a_choice_is_over_the_choices_of_its_own_row() -> None:
    batch = {"item": torch.tensor([0, 0, 1, 1, 1]), "labels": torch.tensor([1, 2])}
    logits = torch.log(torch.tensor([[1.0], [3.0], [1.0], [1.0], [2.0]]))
    expected = -(math.log(3 / 4) + math.log(2 / 4)) / 2
    assert float(CHOOSE.loss(logits, batch)) == pytest.approx(expected)
    torch.testing.assert_close(
        CHOOSE.distribution(logits, batch),
        torch.tensor([[0.25, 0.75, 0.0], [0.25, 0.25, 0.5]]),
    )


def test_the_gradient_of_a_choice_reaches_all_choices_and_is_finite() -> None:
    batch = {"item": torch.tensor([0, 1, 1, 1]), "labels": torch.tensor([0, 2])}
    logits = torch.zeros(4, 1, requires_grad=True)
    CHOOSE.loss(logits, batch).backward()
    torch.testing.assert_close(logits.grad.flatten(), torch.tensor([0.0, 1 / 6, 1 / 6, -1 / 3]))


def test_choices_are_read_as_pairs_with_what_they_share(tmp_path: Path) -> None:
    row = ChoiceRow(1, "the cat", ("sat", "on a mat"), 1)
    batch = columns(split_of(CHOOSE, [row], tmp_path).items, np.array([0]))
    pairs = TOKENIZER.encode(["the cat"] * 2, list(row.choices))
    assert batch["input_ids"][1].tolist() == pairs[1].ids
    assert batch["token_type_ids"][1].tolist() == pairs[1].type_ids


def test_places_are_scored_unless_choices_stand_for_names(tmp_path: Path) -> None:
    plain = ChoiceRow(1, "the", ("cat", "dog"), 0)
    named = ChoiceRow(2, "a", ("cat sat", "dog sat"), 0, ("Tom", "Tim"), names=("Tom", "Rex"))
    split = split_of(CHOOSE, [plain, named], tmp_path)
    raw = [np.array([0.1, 0.9]), np.array([0.2, 0.8])]
    scored = CHOOSE.scored(raw, split.items, split.source.rows())
    assert scored.predicted == [1, "Rex"]
    assert scored.expected == [0, ("Tom", "Tim")]
    assert CHOOSE.answers(raw, split.items, split.source.rows()) == [1, "Rex"]


def test_the_baseline_of_choices_is_the_usual_place_or_the_last_there_is(tmp_path: Path) -> None:
    train = split_of(
        CHOOSE, [ChoiceRow(at, "a", ("cat", "dog", "mat"), 2) for at in (1, 2)], tmp_path
    )
    dev = split_of(
        CHOOSE, [ChoiceRow(1, "a", ("cat", "dog"), 0), ChoiceRow(2, "a", ("a",) * 4, 2)], tmp_path
    )
    baseline = CHOOSE.baseline(train.items, dev.items, dev.source.rows())
    assert baseline.predicted == [1, 2]
    assert baseline.expected == [0, 2]


def test_bad_choices_name_file_and_row(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="file, row 5: expected at least one choice, found none"):
        CHOOSE.encode([ChoiceRow(5, "a", ())], TOKENIZER, "file")
    with pytest.raises(UserError, match="file, row 5: expected a label from 0 to 1, found 2"):
        CHOOSE.encode([ChoiceRow(5, "a", ("b", "c"), 2)], TOKENIZER, "file")
    single = split_of(CHOOSE, [ChoiceRow(1, "a", ("cat",), 0)], tmp_path)
    with pytest.raises(UserError, match="no row of the training split has two choices"):
        CHOOSE.fit(single.items)


def test_training_is_on_spans_and_scores_are_against_the_accepted_texts(tmp_path: Path) -> None:
    row = QuestionRow(
        1, "one", CONTEXT, (Answer("cat", 4),), accepted=("the feline", "a mat with one")
    )
    split = split_of(SPAN, [row], tmp_path)
    raw = SPAN.predictions(knowing(split.items), all_of(split.items))
    scored = SPAN.scored(raw, split.items, split.source.rows())
    assert scored.predicted == ["cat"]
    assert scored.expected == [("the feline", "a mat with one")]
    baseline = SPAN.baseline(split.items, split.items, split.source.rows())
    assert baseline.expected == scored.expected


@pytest.mark.parametrize(("no_answer", "expected"), [(False, ("The", "cat")), (True, ("cat",))])
def test_squad_2_passes_over_answers_of_articles_alone(
    tmp_path: Path, no_answer: bool, expected: tuple[str, ...]
) -> None:
    kind = Span(stride=3, no_answer=no_answer)
    row = QuestionRow(1, "one", "The cat sat", (Answer("The", 0), Answer("cat", 4)))
    split = split_of(kind, [row], tmp_path)
    raw = kind.predictions(knowing(split.items), all_of(split.items))
    assert kind.scored(raw, split.items, split.source.rows()).expected == [expected]
