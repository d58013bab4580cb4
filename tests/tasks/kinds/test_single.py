"""Classify, multi-label and regress, by hand."""

import math

import numpy as np
import pytest
import torch

from taskmix.errors import UserError
from taskmix.tasks.encoding import Encoded
from taskmix.tasks.kinds import Classify, MultiLabel, Regress
from taskmix.tasks.rows import ImageRow, Mark, TextRow
from taskmix.tasks.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["the cat sat on a mat"] * 9, 100, max_length=12)
NLI = Classify(("no", "yes", "maybe"))


def split_of(labels: np.ndarray, **more: np.ndarray) -> Encoded:
    return Encoded(
        items=len(labels),
        rows=len(labels),
        skipped={},
        dense={"labels": labels, **more},
        per_sequence={},
        ragged={},
        offsets=np.zeros(1, dtype=np.int64),
        sequences=None,
        pads={},
        held=frozenset(),
    )


def test_the_loss_of_a_class_is_minus_the_log_of_its_probability() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    batch = {"labels": torch.tensor([0, 2])}
    assert float(NLI.loss(logits, batch)) == pytest.approx(-(math.log(0.5) + math.log(0.8)) / 2)
    torch.testing.assert_close(NLI.distribution(logits, batch), logits.exp())


def test_class_numbers_are_scored_and_names_are_answered() -> None:
    split = split_of(np.array([0, 2]))
    raw = [np.array([0.2, 0.7, 0.1]), np.array([0.1, 0.2, 0.7])]
    scored = NLI.scored(raw, split, iter(()))
    assert (scored.predicted, scored.expected) == ([1, 2], [0, 2])
    assert scored.groups is None
    assert NLI.answers(raw, split, iter(())) == ["yes", "maybe"]


def test_the_baseline_of_classes_is_the_most_frequent_one() -> None:
    baseline = NLI.baseline(split_of(np.array([2, 2, 0])), split_of(np.array([0, 1])), iter(()))
    assert (baseline.predicted, baseline.expected) == ([2, 2], [0, 1])


def test_rows_that_are_scored_together_keep_their_group() -> None:
    rows = [
        TextRow(1, "cat", label="no", group="p1/q1"),
        TextRow(2, "mat", label="yes", group="p1/q1"),
    ]
    rows.append(TextRow(3, "sat", label="yes", group="p1/q2"))
    group = NLI.encode(rows, TOKENIZER, "file").dense["group"]
    assert group[0] == group[1] != group[2]
    scored = NLI.scored([np.eye(3)[0]] * 3, split_of(np.array([0, 1, 1]), group=group), iter(()))
    assert scored.groups == group.tolist()
    assert "group" in NLI.held


def test_an_unknown_label_names_file_and_row() -> None:
    with pytest.raises(UserError, match=r"a\.tsv, row 9: label 'Yes' is not one of: no, yes, may"):
        NLI.encode([TextRow(9, "cat", label="Yes")], TOKENIZER, "a.tsv")


@pytest.mark.parametrize(("labels", "only"), [([1, 1], "yes"), ([-100, -100], "none at all")])
def test_one_class_alone_cannot_be_learned(labels: list[int], only: str) -> None:
    with pytest.raises(UserError, match=rf"one class only \({only}\)"):
        NLI.fit(split_of(np.array(labels)))


def test_pictures_become_pixels() -> None:
    pixels = np.arange(16, dtype=np.uint8).reshape(4, 4)
    columns = NLI.encode([ImageRow(1, pixels, "no"), ImageRow(2, pixels.T, None)], None, "file")
    np.testing.assert_array_equal(columns.dense["pixels"], [pixels, pixels.T])
    assert columns.dense["labels"].tolist() == [0, -100]


def test_marked_pieces_are_found_among_the_tokens() -> None:
    kind = Classify(("no", "yes"), marks=2)
    row = TextRow(1, "the cat sat", "on a mat", "no", (Mark(4, 7), Mark(3, 8, second=True)))
    places = kind.encode([row], TOKENIZER, "file").dense["marks"]
    [encoding] = TOKENIZER.encode([row.text], [row.pair], offsets=True)
    found = [[encoding.tokens[i] for i in range(a, b)] for a, b in places[0]]
    assert found == [["▁cat"], ["▁a", "▁mat"]]


def test_a_mark_that_was_cut_off_is_read_at_the_first_token() -> None:
    kind = Classify(("no", "yes"), marks=1)
    row = TextRow(1, "cat " * 40, None, "no", (Mark(150, 153),))
    assert kind.encode([row], TOKENIZER, "file").dense["marks"].tolist() == [[[0, 1]]]


def test_a_row_with_too_few_marks_is_one_sentence() -> None:
    with pytest.raises(UserError, match="file, row 1: expected 2 marked pieces, found 1"):
        Classify(("no", "yes"), marks=2).encode(
            [TextRow(1, "cat", label="no", marks=(Mark(0, 3),))], TOKENIZER, "file"
        )


def test_predicting_the_mean_costs_half_a_nat_whatever_the_unit() -> None:
    for unit in (1.0, 1000.0):
        labels = unit * np.array([1.0, 2.0, 3.0, 6.0], dtype=np.float32)
        kind = Regress().fit(split_of(labels))
        batch = {"labels": torch.from_numpy(labels)}
        assert float(kind.loss(torch.zeros(4, 1), batch)) == pytest.approx(0.5)
        right = torch.from_numpy((labels - kind.mean) / kind.scale)[:, None]
        assert float(kind.loss(right.float(), batch)) == pytest.approx(0, abs=1e-10)
        assert kind.predictions(right.float(), batch) == pytest.approx(labels.tolist(), rel=1e-6)


def test_the_loss_of_a_number_is_that_of_a_gaussian_of_unit_variance() -> None:
    kind = Regress(mean=1.0, scale=2.0)
    batch = {"labels": torch.tensor([5.0])}  # z = 2
    loss = float(kind.loss(torch.tensor([[0.5]]), batch))
    gaussian = torch.distributions.Normal(0.5, 1.0)
    best = torch.distributions.Normal(2.0, 1.0)
    z = torch.tensor(2.0)
    assert loss == pytest.approx(float(best.log_prob(z) - gaussian.log_prob(z)))


def test_one_value_alone_cannot_be_learned() -> None:
    with pytest.raises(UserError, match="one value only"):
        Regress().fit(split_of(np.array([3.0, 3.0], dtype=np.float32)))


@pytest.mark.parametrize("label", ["much", float("inf"), (1,), 1e300, 10**400, "9" * 400])
def test_a_label_that_is_no_number_names_file_and_row(label: object) -> None:
    with pytest.raises(UserError, match=r"file, row 4: expected a finite number, found"):
        Regress().encode([TextRow(4, "cat", label=label)], TOKENIZER, "file")  # type: ignore[arg-type]


EMOTIONS = MultiLabel(("joy", "anger", "fear"))


def test_labels_that_apply_are_ones() -> None:
    rows = [
        TextRow(1, "cat", label=("fear", "joy")),
        TextRow(2, "cat", label=()),
        TextRow(3, "cat"),
    ]
    labels = EMOTIONS.encode(rows, TOKENIZER, "file").dense["labels"]
    assert labels.tolist() == [[1, 0, 1], [0, 0, 0], [-1, -1, -1]]


def test_the_loss_of_several_labels_is_the_mean_of_their_decisions() -> None:
    p = torch.tensor([[0.9, 0.2, 0.5]])
    batch = {"labels": torch.tensor([[1, 0, 1]], dtype=torch.int8)}
    expected = -(math.log(0.9) + math.log(0.8) + math.log(0.5)) / 3
    assert float(EMOTIONS.loss(p.logit(), batch)) == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(
        EMOTIONS.distribution(p.logit(), batch), torch.stack([1 - p[0], p[0]], dim=-1)
    )
    assert float(EMOTIONS.loss(torch.zeros(1, 3), batch)) == pytest.approx(math.log(2))


def test_labels_more_likely_than_not_are_answered() -> None:
    split = split_of(np.array([[1, 0, 0], [0, 0, 0]], dtype=np.int8))
    raw = [np.array([0.6, 0.4, 0.51]), np.array([0.5, 0.1, 0.2])]
    assert EMOTIONS.answers(raw, split, iter(())) == [("joy", "fear"), ()]
    assert EMOTIONS.scored(raw, split, iter(())).expected == [("joy",), ()]


def test_the_baseline_of_several_labels_is_what_most_rows_have() -> None:
    train = split_of(np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]], dtype=np.int8))
    assert EMOTIONS.baseline(train, train, iter(())).predicted == [("joy",)] * 4


def test_wrong_labels_of_several_name_file_and_row() -> None:
    with pytest.raises(
        UserError, match="file, row 2: label 'envy' is not one of: joy, anger, fear"
    ):
        EMOTIONS.encode([TextRow(2, "cat", label=("joy", "envy"))], TOKENIZER, "file")
    with pytest.raises(UserError, match="file, row 2: expected a list of labels, found 'joy'"):
        EMOTIONS.encode([TextRow(2, "cat", label="joy")], TOKENIZER, "file")


def test_the_same_labels_everywhere_cannot_be_learned() -> None:
    with pytest.raises(UserError, match="every row of the training split has the same labels"):
        EMOTIONS.fit(split_of(np.array([[1, 0, 0], [1, 0, 0]], dtype=np.int8)))
