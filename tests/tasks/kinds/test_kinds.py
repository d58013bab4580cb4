"""What every kind has to do, whichever it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memory import Memory
from taskmix.errors import UserError
from taskmix.tasks.batches import in_order
from taskmix.tasks.encoding import Encoded, encode
from taskmix.tasks.kinds import (
    KINDS,
    Choose,
    Classify,
    Generate,
    Kind,
    MultiLabel,
    Regress,
    Span,
    Tag,
    from_spec,
)
from taskmix.tasks.rows import (
    Answer,
    ChoiceRow,
    ImageRow,
    PromptRow,
    QuestionRow,
    Row,
    TextRow,
    WordsRow,
)
from taskmix.tasks.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["the cat sat on a mat with one dog"] * 9, 200, max_length=16)
Item = dict[str, torch.Tensor]


def columns(split, items):  # type: ignore[no-untyped-def]
    """All columns of some items: what the encoder reads, and the targets."""
    inputs, targets = split.batch(items)
    return inputs | targets


def text(at: int) -> str:
    return " ".join(("the cat sat on a mat " * 9).split()[: 1 + at * 5 % 17])


def rows_of(kind: Kind, unlabelled: bool = False) -> tuple[Row, ...]:
    return tuple(row_of(kind, at, unlabelled) for at in range(1, 13))


def row_of(kind: Kind, at: int, unlabelled: bool) -> Row:
    match kind:
        case Classify():
            return TextRow(at, text(at), None, None if unlabelled else ("no", "yes")[at % 2])
        case MultiLabel():
            labels = (("joy",), (), ("joy", "fear"))[at % 3]
            return TextRow(at, text(at), text(at + 1), None if unlabelled else labels)
        case Regress():
            return TextRow(at, text(at), text(at + 1), None if unlabelled else float(at))
        case Tag():
            words = tuple(text(at).split())
            return WordsRow(at, words, None if unlabelled else ("O", *["B-x"] * (len(words) - 1)))
        case Span():
            context = text(at) + " dog " + text(at + 1)
            answers = (Answer("dog", context.index("dog")),)
            return QuestionRow(at, "with one", context, None if unlabelled else answers)
        case Choose():
            choices = tuple(text(at + number) for number in range(2 + at % 3))
            return ChoiceRow(at, text(at), choices, None if unlabelled else at % 2)
        case Generate():
            return PromptRow(at, text(at), None if unlabelled else text(at + 1))
    raise AssertionError(kind)


ALL: list[Kind] = [
    Classify(("no", "yes")),
    MultiLabel(("joy", "anger", "fear")),
    Regress(),
    Tag(("O", "B-x", "I-x")),
    Span(stride=4),
    Choose(),
    Generate(prompts=True),
]
every_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)


def encoded(kind: Kind, cache: Path, unlabelled: bool = False) -> tuple[Encoded, tuple[Row, ...]]:
    rows = rows_of(kind, unlabelled)
    return encode(kind, Memory(rows), TOKENIZER, cache), rows


def tensors(columns: dict[str, Any]) -> Item:
    return {name: torch.from_numpy(np.array(column)) for name, column in columns.items()}


def logits_of(kind: Kind, batch: Item) -> torch.Tensor:
    """Logits of the form that the kind's head gives, a function of the tokens."""
    ids = batch["input_ids"] * batch["attention_mask"]
    width = TOKENIZER.vocabulary if kind.reads == "vocabulary" else kind.width
    numbers = torch.arange(1, width + 1) / 3
    per_token = torch.sin(ids.unsqueeze(-1) * numbers)
    return per_token.sum(1) + numbers if kind.reads == "pooled" else per_token


def predicted(kind: Kind, split: Encoded, size: int) -> list[Any]:
    raw: list[Any] = [None] * len(split)
    for part in in_order("task", split, size):
        batch = tensors(part.inputs | part.parts[0].columns)
        logits = logits_of(kind, batch)
        raws = kind.predictions(logits, batch)
        for item, each in zip(part.parts[0].items, raws, strict=True):
            raw[item] = each
    return raw


def test_all_kinds_are_tried_here() -> None:
    assert {type(kind) for kind in ALL} == set(KINDS)


@every_kind
def test_a_kind_comes_back_from_its_spec(kind: Kind, tmp_path: Path) -> None:
    fitted = kind.fit(encoded(kind, tmp_path)[0])
    assert from_spec(kind.spec()) == kind
    assert from_spec(fitted.spec()) == fitted


@every_kind
def test_the_loss_is_a_finite_number_with_a_gradient(kind: Kind, tmp_path: Path) -> None:
    split, _ = encoded(kind, tmp_path)
    kind = kind.fit(split)
    batch = tensors(columns(split, np.arange(6)))
    logits = logits_of(kind, batch).requires_grad_()
    loss = kind.loss(logits, batch)
    loss.backward()
    assert loss.shape == ()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", [ALL[3], ALL[4]], ids=lambda kind: kind.name)
def test_padding_changes_neither_loss_nor_distribution(kind: Kind, tmp_path: Path) -> None:
    split, _ = encoded(kind, tmp_path)
    batch = tensors(columns(split, np.arange(6)))
    logits = logits_of(kind, batch)
    noisy = logits + torch.where(batch["attention_mask"].bool().unsqueeze(-1), 0.0, 100.0)
    assert not torch.equal(logits, noisy)
    torch.testing.assert_close(kind.loss(noisy, batch), kind.loss(logits, batch))
    torch.testing.assert_close(kind.distribution(noisy, batch), kind.distribution(logits, batch))


@every_kind
def test_the_distribution_is_one_of_each_decision(kind: Kind, tmp_path: Path) -> None:
    split, _ = encoded(kind, tmp_path)
    kind = kind.fit(split)
    batch = tensors(columns(split, np.arange(5)))
    distribution = kind.distribution(logits_of(kind, batch), batch)
    owners = kind.owners(batch)
    assert len(owners) == len(distribution)
    assert set(owners.tolist()) == set(range(5))
    if not isinstance(kind, Regress):
        torch.testing.assert_close(distribution.sum(-1), torch.ones(len(distribution)))
        assert (distribution >= 0).all()


@every_kind
def test_predictions_do_not_depend_on_how_items_are_batched(kind: Kind, tmp_path: Path) -> None:
    split, rows = encoded(kind, tmp_path)
    kind = kind.fit(split)
    answers = [
        kind.answers(predicted(kind, split, size), split, iter(rows)) for size in (1, 3, 100)
    ]
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == len(rows)


@every_kind
def test_scores_stand_beside_one_expected_value_a_row(kind: Kind, tmp_path: Path) -> None:
    split, rows = encoded(kind, tmp_path)
    kind = kind.fit(split)
    scored = kind.scored(predicted(kind, split, 4), split, iter(rows))
    baseline = kind.baseline(split, split, iter(rows))
    assert len(scored.predicted) == len(scored.expected) == len(rows)
    assert list(baseline.expected) == list(scored.expected)
    assert len(baseline.predicted) == len(rows)


@every_kind
def test_rows_without_labels_are_predicted_all_the_same(kind: Kind, tmp_path: Path) -> None:
    open_split, rows = encoded(kind, tmp_path)
    unlabelled_split, unlabelled_rows = encoded(kind, tmp_path, unlabelled=True)
    kind = kind.fit(open_split)
    assert not kind.unlabelled(open_split).any()
    assert kind.unlabelled(unlabelled_split).all()
    assert kind.answers(
        predicted(kind, unlabelled_split, 4), unlabelled_split, iter(unlabelled_rows)
    ) == kind.answers(predicted(kind, open_split, 4), open_split, iter(rows))


@every_kind
def test_a_row_of_another_form_is_one_sentence(kind: Kind) -> None:
    picture = ImageRow(7, np.zeros((2, 2), dtype=np.uint8), "no")
    with pytest.raises(UserError, match=r"memory, row 7: expected a \w*Row, found a ImageRow"):
        kind.encode([row_of(kind, 1, False), picture], TOKENIZER, "memory")


@every_kind
def test_texts_need_a_tokenizer(kind: Kind) -> None:
    with pytest.raises(UserError, match="memory: these are texts, but the model reads images"):
        kind.encode(rows_of(kind), None, "memory")


@pytest.mark.parametrize("kind", [Classify, MultiLabel, Tag])
def test_labels_that_are_not_different_names_are_one_sentence(kind: type) -> None:
    with pytest.raises(UserError, match=r"labels: expected \d or more different names"):
        kind(("a", "a"))
    with pytest.raises(UserError, match="labels: expected"):
        kind(())
