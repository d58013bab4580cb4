"""Texts that go on: what is to be said, what it costs, and how it is scored."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from memory import Memory
from taskmix.errors import UserError
from taskmix.tasks.encoding import Encoded, encode
from taskmix.tasks.files import from_files
from taskmix.tasks.kinds import Generate
from taskmix.tasks.metrics import GREEDY_MATCH, PERPLEXITY
from taskmix.tasks.rows import PromptRow, Row
from taskmix.tasks.shapes import ColumnMap
from taskmix.tasks.tokenizer import Tokenizer

TEXTS = ["the cat sat on a mat with one dog", "where was the dog? it was here."] * 5
WORDS = ["the", "cat", "sat", "on", "a", "mat", "with", "one", "dog", "where", "was", "it", "here"]


def tokenizer(max_length: int = 16) -> Tokenizer:
    return Tokenizer.train_generator(TEXTS, 300, max_length)


def encoded(rows: Sequence[Row], kind: Generate, words: Tokenizer, cache: Path) -> Encoded:
    return encode(kind, Memory(tuple(rows)), words, cache)


def batch_of(split: Encoded) -> dict[str, torch.Tensor]:
    inputs, targets = split.batch(np.arange(len(split)))
    return {name: torch.from_numpy(np.array(x)) for name, x in (inputs | targets).items()}


ROWS = [
    PromptRow(1, "where was the cat?", "on a mat"),
    PromptRow(2, "the dog", "sat"),
    PromptRow(3, "one", "cat with one dog"),
]


def test_the_prompt_is_masked_and_the_answer_with_its_end_is_not(tmp_path: Path) -> None:
    words = tokenizer(40)
    batch = batch_of(encoded(ROWS, Generate(prompts=True), words, tmp_path))
    for row, ids, labels, until in zip(
        ROWS, batch["input_ids"], batch["labels"], batch["until"], strict=True
    ):
        said = ids[labels >= 0].tolist()
        before = ids[: int(until)].tolist()
        assert said[-1] == words.end
        assert words.text(said).strip() == row.answer
        assert before[0] == words.start[0]
        assert words.text(before) == row.prompt
        assert (labels[: int(until)] == -100).all()
        assert (labels[labels >= 0] == ids[labels >= 0]).all()


def test_loss_and_misses_are_those_of_a_loop_over_the_answer(tmp_path: Path) -> None:
    words = tokenizer(40)
    kind = Generate(prompts=True)
    batch = batch_of(encoded(ROWS, kind, words, tmp_path))
    logits = torch.randn(*batch["input_ids"].shape, words.vocabulary, generator=_seeded())
    losses, misses = [], []
    for row, numbers in zip(ROWS, logits.double(), strict=True):
        prompt = words.backend.encode(row.prompt).ids
        whole = [*words.backend.encode(f"{row.prompt} {row.answer}").ids, words.end]
        right = 0
        for place in range(len(prompt), len(whole)):
            before = numbers[place - 1].tolist()
            total = math.log(sum(math.exp(x) for x in before))
            losses.append(total - before[whole[place]])
            right += before.index(max(before)) == whole[place]
        misses.append(len(whole) - len(prompt) - right)
    found = kind.predictions(logits, batch)
    assert float(kind.loss(logits, batch)) == pytest.approx(np.mean(losses), abs=1e-5)
    assert kind.counted(batch, 3) == len(losses)
    assert [each.misses for each in found] == misses
    assert sum(each.loss for each in found) == pytest.approx(sum(losses), abs=1e-4)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def test_every_token_of_a_long_text_is_predicted_once(tmp_path: Path) -> None:
    words = tokenizer(16)
    text = " ".join(WORDS * 5)
    split = encoded(
        [PromptRow(1, "", text), PromptRow(2, "", "a cat")], Generate(), words, tmp_path
    )
    batch = batch_of(split)
    rows = split.dense["row"]
    said = [
        int(token)
        for ids, labels, row in zip(batch["input_ids"], batch["labels"], rows, strict=True)
        for token, label in zip(ids, labels, strict=True)
        if label >= 0 and row == 0
    ]
    assert split.rows == 2
    assert len(split) > 4
    assert max(split.lengths()) == 16
    assert said == [*tokenizer(1000).backend.encode(text, add_special_tokens=False).ids, words.end]


def test_a_long_prompt_loses_its_beginning_and_a_long_answer_its_end(tmp_path: Path) -> None:
    words = tokenizer(16)
    rows = [PromptRow(1, " ".join(WORDS * 2), "dog"), PromptRow(2, "the", " ".join(WORDS * 2))]
    split = encoded(rows, Generate(prompts=True), words, tmp_path)
    batch = batch_of(split)
    assert split.cut == 2
    assert len(split) == 2
    before = words.text(batch["input_ids"][0, : int(batch["until"][0])].tolist())
    assert rows[0].prompt.endswith(before)
    said = batch["input_ids"][1][batch["labels"][1] >= 0].tolist()
    assert rows[1].answer.startswith(words.text(said).strip())
    assert words.end not in said


def test_without_a_token_that_ends_texts_nothing_is_added(tmp_path: Path) -> None:
    plain = Tokenizer.train(TEXTS, 200, 32)
    split = encoded([PromptRow(1, "", "the cat")], Generate(), plain, tmp_path)
    assert plain.end is None
    assert split.ragged["labels"][0] == -100
    assert (split.ragged["labels"][1:] == split.ragged["input_ids"][1:]).all()


def test_perplexity_is_that_of_all_tokens_and_its_inverse_is_the_score() -> None:
    rows = [(6.0, 3, 1), (2.0, 1, 0)]
    assert PERPLEXITY.compute(rows, ["a", "b"], None) == pytest.approx(math.exp(2))
    assert PERPLEXITY.worth(math.exp(2)) == pytest.approx(math.exp(-2))
    assert math.isfinite(PERPLEXITY.compute([(1e6, 1, 1)], ["a"], None))
    assert GREEDY_MATCH.compute(rows, ["a", "b"], None) == 0.5


def test_the_baseline_is_the_frequency_of_each_token(tmp_path: Path) -> None:
    words = tokenizer()
    kind = Generate()
    train = encoded([PromptRow(1, "", "cat cat dog")], kind, words, tmp_path)
    rows = [PromptRow(1, "", "cat"), PromptRow(2, "", "dog dog")]
    split = encoded(rows, kind, words, tmp_path)
    counts = dict.fromkeys(range(int(split.ragged["labels"].max()) + 1), 1)
    for label in train.ragged["labels"].tolist():
        if label >= 0:
            counts[label] = counts.get(label, 1) + 1
    for number in range(max(counts)):
        counts.setdefault(number, 1)
    total = sum(counts.values())
    expected = [-math.log(counts[x] / total) for x in split.ragged["labels"].tolist() if x >= 0]
    found = kind.baseline(train, split, iter(rows))
    assert sum(row[0] for row in found.predicted) == pytest.approx(sum(expected))
    assert sum(row[1] for row in found.predicted) == len(expected)
    assert list(found.expected) == ["cat", "dog dog"]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (ColumnMap(text="t", prompt="p", answer="a"), "found both"),
        (ColumnMap(prompt="p"), "needs `text`"),
        (ColumnMap(), "needs `text`"),
    ],
)
def test_columns_that_do_not_go_together(columns: ColumnMap, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Generate.shape(columns)


def test_a_file_of_texts_and_one_of_prompts(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body\nso it goes\n")
    (tmp_path / "p.csv").write_text("q,a\nwho?,bob\nhow many?,3\n")
    texts = from_files("t", kind="generate", train=tmp_path / "t.csv", text="body")
    asked = from_files("p", kind="generate", train=tmp_path / "p.csv", prompt="q", answer="a")
    assert texts.kind == Generate()
    assert [metric.name for metric in texts.metrics] == ["perplexity"]
    assert asked.kind == Generate(prompts=True)
    assert [metric.name for metric in asked.metrics] == ["exact_match", "perplexity"]
    assert list(asked.split("train").rows())[1] == PromptRow(3, "how many?", "3")
    bare = texts.split("train").shape.without_labels()
    assert bare.prompt == "body"
    assert bare.answer is None


def test_other_kinds_still_need_their_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body,y\nso it goes,a\n")
    with pytest.raises(UserError, match="task t: expected a value for label, found none"):
        from_files("t", train=tmp_path / "t.csv", text="body")


def test_what_is_learned_is_read_back_whatever_it_is() -> None:
    words = tokenizer(100)
    for text in ("Grüße, 你好 🙂", "A  b\tc\n", "the CAT"):
        assert words.text(words.backend.encode(text).ids) == text


def test_a_prompt_that_ends_with_a_space_is_read_as_it_stands() -> None:
    words = tokenizer(100)
    [prompt], [answer] = words.continued(["the dog "], ["sat"])
    assert prompt.tolist() == words.backend.encode("the dog ", add_special_tokens=False).ids
    assert words.text([*prompt, *answer]) == "the dog sat"
