from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from taskmix.errors import UserError
from taskmix.models.encoders import packaged_minilm
from taskmix.tasks.tokenizer import Tokenizer

TEXTS = ["The cat sat on a mat.", "Who saw the brown dog?", "A dog ran far, far away!"] * 5

STRANGE = "Zürich's trams, built in 1882: ran up-hill; naïvely — it was (said) £5 a ride"


LEARNED = Tokenizer.train(TEXTS, vocabulary=120, max_length=16)


@pytest.fixture
def learned() -> Tokenizer:
    return LEARNED


@pytest.fixture(scope="module")
def minilm() -> Tokenizer:
    return Tokenizer.from_folder(packaged_minilm(), 32)


def test_a_learned_vocabulary_reads_what_it_was_learned_from(learned: Tokenizer) -> None:
    [encoding] = learned.encode(["The CAT sat"], [None], offsets=True)
    assert encoding.tokens == ["[CLS]", "▁the", "▁cat", "▁sat", "[SEP]"]
    assert encoding.offsets[1:4] == [(0, 3), (4, 7), (8, 11)]
    [pair] = learned.encode(["the cat"], ["a dog"], offsets=True)
    assert pair.tokens == ["[CLS]", "▁the", "▁cat", "[SEP]", "▁a", "▁dog", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 1, 1, 1]


def test_learning_twice_gives_the_same_vocabulary(learned: Tokenizer) -> None:
    assert Tokenizer.train(TEXTS, 120, 16).fingerprint() == learned.fingerprint()


def test_what_was_saved_comes_back(learned: Tokenizer, tmp_path: Path) -> None:
    learned.save(tmp_path)
    again = Tokenizer.from_folder(tmp_path, 16)
    assert again.fingerprint() == learned.fingerprint()
    assert again.pad_id == learned.pad_id == 0


def test_a_folder_without_a_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected a tokenizer\.json, found none"):
        Tokenizer.from_folder(tmp_path, 16)


def test_a_length_of_nothing_is_one_sentence(learned: Tokenizer) -> None:
    with pytest.raises(UserError, match="max_length: expected at least 8, found 7"):
        Tokenizer(learned.backend, 7)


def test_pairs_are_cut_at_the_longer_text(learned: Tokenizer) -> None:
    [encoding] = learned.encode(["the cat"], ["dog " * 30], offsets=True)
    assert len(encoding.ids) == 16
    assert encoding.tokens[:4] == ["[CLS]", "▁the", "▁cat", "[SEP]"]


def test_what_was_never_seen_is_unknown(learned: Tokenizer) -> None:
    [encoding] = learned.encode(["cat 世"], [None], offsets=True)
    assert encoding.tokens == ["[CLS]", "▁cat", "▁", "[UNK]", "[SEP]"]


def test_words_keep_their_numbers(learned: Tokenizer) -> None:
    [encoding] = learned.encode_words([["The", "mat.", "dogcat"]])
    words = [word for word in encoding.word_ids if word is not None]
    assert sorted(set(words)) == [0, 1, 2]
    assert words == sorted(words)


def test_another_length_is_another_tokenizer_and_leaves_the_first_alone(learned: Tokenizer) -> None:
    before = learned.fingerprint()
    longer = Tokenizer(learned.backend, 24)
    assert longer.fingerprint() != before == learned.fingerprint()
    assert len(learned.encode(["cat " * 50], [None])[0].ids) == 16


def test_windows_are_those_that_transformers_cuts(minilm: Tokenizer) -> None:
    theirs = AutoTokenizer.from_pretrained(packaged_minilm())
    rng = np.random.default_rng(1)
    vocabulary = STRANGE.split()
    for _ in range(30):
        question = " ".join(rng.choice(vocabulary, 4))
        context = " ".join(rng.choice(vocabulary, rng.integers(1, 80)))
        [ours] = minilm.windows([question], [context], stride=6)
        expected = theirs(
            question,
            context,
            truncation="only_second",
            max_length=32,
            stride=6,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        assert [window.ids.tolist() for window in ours] == expected["input_ids"]
        for number, window in enumerate(ours):
            inside = slice(window.first, window.first + len(window.chars))
            assert window.chars.tolist() == [
                list(pair) for pair in expected["offset_mapping"][number][inside]
            ]
            assert window.first == expected["token_type_ids"][number].index(1)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(0, 40), st.integers(0, 90), st.integers(0, 40), st.integers(8, 40))
def test_windows_cover_the_context_and_are_never_too_long(
    question: int, context: int, stride: int, longest: int
) -> None:
    tokenizer = Tokenizer(LEARNED.backend, longest)
    text = " ".join(["cat", "dog", "mat"][number % 3] for number in range(context))
    [windows] = tokenizer.windows(["who " * question], [text], stride)
    assert all(len(window.ids) <= longest for window in windows)
    covered = {tuple(chars) for window in windows for chars in window.chars.tolist()}
    assert covered == {(4 * number, 4 * number + 3) for number in range(context)}
    for one, other in pairwise(windows):
        shared = {tuple(c) for c in one.chars.tolist()} & {tuple(c) for c in other.chars.tolist()}
        assert len(shared) >= min(stride, len(one.chars) // 2)


def test_questions_about_one_context_get_windows_of_their_own(learned: Tokenizer) -> None:
    context = "the cat sat on a mat " * 4
    both = learned.windows(["who", "who saw the dog"], [context, context], stride=2)
    alone = [learned.windows([q], [context], 2)[0] for q in ("who", "who saw the dog")]
    for ours, expected in zip(both, alone, strict=True):
        assert [w.ids.tolist() for w in ours] == [w.ids.tolist() for w in expected]
