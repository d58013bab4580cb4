"""What every kind of task must do, whatever its rows and its outputs are."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from taskmix.tasks.encoding import Encoded, encode
from taskmix.tasks.kinds import Kind, from_spec
from taskmix.tasks.rows import Row
from taskmix.tasks.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

Batch = Mapping[str, "Tensor"]


class KindConformance(ABC):
    """The properties that every kind of task has, as pytest tests.

    The author of a kind subclasses this in a test module, and says how to make one and what its
    rows look like, with labels and without:

        from taskmix.testing import KindConformance

        class TestMyKind(KindConformance):
            def make(self):
                return MyKind()

            def rows(self, labelled):
                return [TextRow(at, f"text {at}", label=at if labelled else None) for at in ...]

    Outputs of a model are made up from the batch, in the form that the kind's head gives.

    >>> from taskmix.tasks.kinds import Regress
    >>> from taskmix.tasks.rows import TextRow
    >>> class RegressConforms(KindConformance):
    ...     def make(self):
    ...         return Regress()
    ...     def rows(self, labelled):
    ...         return [TextRow(at, f"no {at}", label=at if labelled else None) for at in range(9)]
    >>> RegressConforms().test_the_loss_is_a_finite_number_with_a_gradient()
    """

    #: Whether `distribution` gives probabilities; a regression's gives means.
    probabilities = True

    @abstractmethod
    def make(self) -> Kind:
        """Return a fresh kind, as it is before `fit`."""

    @abstractmethod
    def rows(self, labelled: bool) -> Sequence[Row]:
        """At least six rows; the same ones with their labels and without."""

    def tokenizer(self) -> Tokenizer | None:
        """Return what reads the rows' texts; None where there are none."""
        return Tokenizer.train(["the cat sat on a mat with one dog"] * 9, 200, max_length=16)

    def restored(self, spec: Mapping[str, Any]) -> Kind:
        """Return the kind that a saved model's spec describes."""
        return from_spec(spec)

    def outputs(self, kind: Kind, batch: Batch) -> "Tensor":
        """Return what a model gives for a batch: `width` numbers for each token or sequence.

        A kind without a head gets one for each word of the tokenizer's vocabulary.
        """
        import torch

        words = self.tokenizer() if kind.reads == "vocabulary" else None
        width = kind.width if words is None else words.vocabulary
        numbers = torch.arange(1, width + 1) / 3
        if "input_ids" in batch:
            ids = batch["input_ids"] * batch["attention_mask"]
            places = torch.arange(1, ids.shape[1] + 1)
            # Whole numbers, so that sums over more padding are the same to the last bit.
            keys = (ids * places).sum(1) if kind.reads == "pooled" else ids
        else:
            keys = torch.stack([c.flatten(1).long().sum(1) for c in _inputs(batch)]).sum(0)
        return torch.sin(keys.unsqueeze(-1) * numbers)

    def test_it_has_a_name_and_a_head(self) -> None:
        """Run files name a kind in snake case; its head has at least one output."""
        kind = self.make()
        assert kind.name.isidentifier()
        assert kind.name == kind.name.lower()
        assert kind.width >= 1

    def test_it_comes_back_from_its_spec(self) -> None:
        """Through JSON, before it was fitted and after."""
        with self._encoded() as (split, _):
            for kind in (self.make(), self.make().fit(split)):
                spec = json.loads(json.dumps(kind.spec(), allow_nan=False))
                assert self.restored(spec) == kind
                assert self.restored(spec).spec() == kind.spec()

    def test_fitting_leaves_the_columns_as_they_are(self) -> None:
        """A split that was encoded before `fit` serves after it."""
        with self._encoded() as (split, _):
            assert self.make().fit(split).columns_spec() == self.make().columns_spec()
            assert self.make().fit(split).width == self.make().width

    def test_the_loss_is_a_finite_number_with_a_gradient(self) -> None:
        """It can be trained with; a gradient reaches the outputs."""
        import torch

        with self._encoded() as (split, _):
            kind = self.make().fit(split)
            batch = _tensors(split, np.arange(6))
            outputs = self.outputs(kind, batch).requires_grad_()
            loss = kind.loss(outputs, batch)
            loss.backward()
            assert loss.shape == ()
            assert torch.isfinite(loss)
            assert outputs.grad is not None
            assert torch.isfinite(outputs.grad).all()
            assert outputs.grad.abs().sum() > 0

    def test_a_distribution_is_one_of_each_decision(self) -> None:
        """Probabilities sum to one, and every decision has an owner among the items."""
        with self._encoded() as (split, _):
            kind = self.make().fit(split)
            batch = _tensors(split, np.arange(5))
            distribution = kind.distribution(self.outputs(kind, batch), batch)
            owners = kind.owners(batch)
            assert distribution.ndim == 2
            assert owners.shape == (len(distribution),)
            assert set(owners.tolist()) == set(range(5))
            if self.probabilities:
                assert (distribution >= 0).all()
                assert (distribution.sum(-1) - 1).abs().max() < 1e-5
            else:
                assert distribution.shape[1] == 1

    def test_predictions_do_not_depend_on_how_items_are_batched(self) -> None:
        """Padding is not looked at, and there is an answer for each row."""
        with self._encoded() as (split, rows):
            kind = self.make().fit(split)
            answers = [
                kind.answers(self._predicted(kind, split, size), split, iter(rows))
                for size in (1, 3, len(split))
            ]
            assert answers[0] == answers[1] == answers[2]
            assert len(answers[0]) == len(rows)
            different = {repr(answer) for answer in answers[0]}
            assert len(different) > 1, f"expected rows that are told apart, found {different} alone"

    def test_scores_stand_beside_one_expected_value_a_row(self) -> None:
        """Of the predictions as of the baseline, and both expect the same."""
        with self._encoded() as (split, rows):
            kind = self.make().fit(split)
            raw = self._predicted(kind, split, 4)
            scored = kind.scored(raw, split, iter(rows))
            baseline = kind.baseline(split, split, iter(rows))
            assert len(scored.predicted) == len(scored.expected) == len(rows)
            if baseline is not None:
                assert len(baseline.predicted) == len(rows)
                assert list(baseline.expected) == list(scored.expected)
            assert scored.groups is None or len(scored.groups) == len(rows)

    def test_rows_without_labels_are_predicted_as_with_them(self) -> None:
        """Test sets are; and the kind knows which items have no label."""
        with self._encoded() as (split, rows), self._encoded(labelled=False) as (bare, bare_rows):
            kind = self.make().fit(split)
            assert not kind.unlabelled(split).any()
            assert kind.unlabelled(bare).all()
            assert kind.unlabelled(bare).shape == (len(bare),)
            expected = kind.answers(self._predicted(kind, split, 4), split, iter(rows))
            found = kind.answers(self._predicted(kind, bare, 4), bare, iter(bare_rows))
            assert found == expected

    def test_a_part_of_a_split_is_predicted_as_the_whole(self) -> None:
        """Subsets of dev sets are taken item by item."""
        with self._encoded() as (split, _):
            kind = self.make().fit(split)
            items = np.arange(1, len(split), 2)
            whole, part = _tensors(split, items), _tensors(split.take(items), np.arange(len(items)))
            assert set(whole) == set(part)
            assert float(kind.loss(self.outputs(kind, whole), whole)) == float(
                kind.loss(self.outputs(kind, part), part)
            )

    def _encoded(self, labelled: bool = True) -> "_EncodedRows":
        return _EncodedRows(self.make(), self.rows(labelled), self.tokenizer())

    def _predicted(self, kind: Kind, split: Encoded, size: int) -> list[Any]:
        raw: list[Any] = []
        for first in range(0, len(split), size):
            batch = _tensors(split, np.arange(first, min(first + size, len(split))))
            raw += kind.predictions(self.outputs(kind, batch), batch)
        assert len(raw) == len(split), "expected one raw prediction an item"
        return raw


class _EncodedRows:
    """Rows encoded in a folder that is gone afterwards."""

    def __init__(self, kind: Kind, rows: Sequence[Row], tokenizer: Tokenizer | None) -> None:
        self._kind = kind
        self._rows = rows
        self._tokenizer = tokenizer
        self._folder = TemporaryDirectory()

    def __enter__(self) -> tuple[Encoded, Sequence[Row]]:
        source = _Memory(tuple(self._rows))
        cache = Path(self._folder.name)
        return encode(self._kind, source, self._tokenizer, cache), self._rows

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()


@dataclass(frozen=True, eq=False)
class _Memory:
    """Rows that are there already."""

    content: tuple[Row, ...]
    where: str = "the kit's rows"

    def rows(self) -> Iterator[Row]:
        return iter(self.content)

    def skips(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        return "the kit's rows"


def _tensors(split: Encoded, items: Any) -> Batch:
    import torch

    inputs, targets = split.batch(items)
    return {name: torch.from_numpy(np.array(c)) for name, c in (inputs | targets).items()}


def _inputs(batch: Batch) -> list["Tensor"]:
    """Return the columns that are no labels."""
    return [column for name, column in batch.items() if name != "labels" and column.ndim > 1]
