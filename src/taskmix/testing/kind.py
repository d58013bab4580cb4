"""The conformance kit of kinds of tasks."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

    A subclass makes the kind and its rows. There is no model: its outputs are computed from the
    batch, in the shape that the kind's head has.

    >>> from taskmix.tasks.kinds import Regress
    >>> from taskmix.tasks.rows import TextRow
    >>> class RegressConforms(KindConformance):
    ...     def make(self):
    ...         return Regress()
    ...     def rows(self, labelled):
    ...         return [TextRow(at, f"no {at}", label=at if labelled else None) for at in range(9)]
    >>> RegressConforms().test_the_loss_is_a_finite_number_with_a_gradient()
    """

    #: Whether `distribution` returns probabilities; that of a regression returns means.
    probabilities = True

    @abstractmethod
    def make(self) -> Kind:
        """Return a new kind, before `fit`."""

    @abstractmethod
    def rows(self, labelled: bool) -> Sequence[Row]:
        """Return at least six rows; the same ones with their labels and without."""

    def tokenizer(self) -> Tokenizer | None:
        """Return the tokenizer of the rows' texts; None for rows without texts."""
        return Tokenizer.train(["the cat sat on a mat with one dog"] * 9, 200, max_length=16)

    def restored(self, spec: Mapping[str, Any]) -> Kind:
        """Return the kind of a saved model's spec."""
        return from_spec(spec)

    def outputs(self, kind: Kind, batch: Batch) -> "Tensor":
        """Return the outputs of a model for a batch: `width` numbers for each token or sequence.

        For a kind without a head, the width is that of the tokenizer's vocabulary.
        """
        import torch

        tokenizer = self.tokenizer() if kind.reads == "vocabulary" else None
        width = kind.width if tokenizer is None else tokenizer.vocabulary
        numbers = torch.arange(1, width + 1) / 3
        if "input_ids" in batch:
            ids = batch["input_ids"] * batch["attention_mask"]
            places = torch.arange(1, ids.shape[1] + 1)
            # Whole numbers, so that sums over more padding are the same to the last bit.
            keys = (ids * places).sum(1) if kind.reads == "pooled" else ids
        else:
            inputs = [c for name, c in batch.items() if name != "labels" and c.ndim > 1]
            keys = torch.stack([column.flatten(1).long().sum(1) for column in inputs]).sum(0)
        return torch.sin(keys.unsqueeze(-1) * numbers)

    def test_it_has_a_name_and_a_head(self) -> None:
        """Run files name a kind in snake case; its head has at least one output."""
        kind = self.make()
        assert kind.name.isidentifier()
        assert kind.name == kind.name.lower()
        assert kind.width >= 1

    def test_it_comes_back_from_its_spec(self) -> None:
        """Through JSON, before `fit` and after it."""
        with self._encoded() as (split, _):
            for kind in (self.make(), self.make().fit(split)):
                spec = json.loads(json.dumps(kind.spec(), allow_nan=False))
                assert self.restored(spec) == kind
                assert self.restored(spec).spec() == kind.spec()

    def test_fitting_leaves_the_columns_as_they_are(self) -> None:
        """A split that was encoded before `fit` can be used after it."""
        with self._encoded() as (split, _):
            assert self.make().fit(split).columns_spec() == self.make().columns_spec()
            assert self.make().fit(split).width == self.make().width

    def test_the_loss_is_a_finite_number_with_a_gradient(self) -> None:
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
        """Padding is ignored, and there is an answer for each row."""
        with self._encoded() as (split, rows):
            kind = self.make().fit(split)
            answers = [
                kind.answers(self._predicted(kind, split, size), split, iter(rows))
                for size in (1, 3, len(split))
            ]
            assert answers[0] == answers[1] == answers[2]
            assert len(answers[0]) == len(rows)
            different = {repr(answer) for answer in answers[0]}
            assert len(different) > 1, f"expected different answers, found {different} alone"

    def test_scores_stand_beside_one_expected_value_a_row(self) -> None:
        """Predictions and baseline are scored against the same expected values."""
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
        """The kind knows which items have no label."""
        with self._encoded() as (split, rows), self._encoded(labelled=False) as (bare, bare_rows):
            kind = self.make().fit(split)
            assert not kind.unlabelled(split).any()
            assert kind.unlabelled(bare).all()
            assert kind.unlabelled(bare).shape == (len(bare),)
            expected = kind.answers(self._predicted(kind, split, 4), split, iter(rows))
            answers = kind.answers(self._predicted(kind, bare, 4), bare, iter(bare_rows))
            assert answers == expected

    def test_a_part_of_a_split_is_predicted_as_the_whole(self) -> None:
        with self._encoded() as (split, _):
            kind = self.make().fit(split)
            items = np.arange(1, len(split), 2)
            batch, part = _tensors(split, items), _tensors(split.take(items), np.arange(len(items)))
            assert set(batch) == set(part)
            loss, loss_of_part = (kind.loss(self.outputs(kind, b), b) for b in (batch, part))
            assert float(loss) == float(loss_of_part)

    @contextmanager
    def _encoded(self, labelled: bool = True) -> Iterator[tuple[Encoded, Sequence[Row]]]:
        rows = self.rows(labelled)
        with TemporaryDirectory() as folder:
            source = _Memory(tuple(rows))
            yield encode(self.make(), source, self.tokenizer(), Path(folder)), rows

    def _predicted(self, kind: Kind, split: Encoded, size: int) -> list[Any]:
        raw: list[Any] = []
        for first in range(0, len(split), size):
            batch = _tensors(split, np.arange(first, min(first + size, len(split))))
            raw += kind.predictions(self.outputs(kind, batch), batch)
        assert len(raw) == len(split), "expected one raw prediction an item"
        return raw


@dataclass(frozen=True, eq=False)
class _Memory:
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
