"""What every kind of task knows: its columns, its head, its loss, its predictions."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.metrics import Metric
from taskmix.tasks.rows import Row, Source
from taskmix.tasks.shapes import Shape

if TYPE_CHECKING:
    from torch import Tensor, nn

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """A chunk of encoded items, ready to be stored.

    An item is what a batch is made of: a row, or a window of a long one. It has one sequence, or
    several (the choices of a `choose` task).

    Args:
        dense: by name, arrays whose first axis is the items.
        ragged: by name, an array for each sequence; `input_ids` among them if there is any.
        per_sequence: by name, arrays whose first axis is the sequences.
        sequences: how many sequences each item has; one each if None.
        items: how many items each row has; one each if None. Where it is given, the encoded split
            has a dense column `row`, the number of each item's row.
    """

    dense: Mapping[str, Array]
    ragged: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    per_sequence: Mapping[str, Array] = field(default_factory=dict)
    sequences: Sequence[int] | None = None
    items: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """Predictions beside what was expected, as the metrics take them."""

    predicted: Sequence[Any]
    expected: Sequence[Any]
    groups: Sequence[Any] | None = None


class Kind(ABC):
    """What a task's rows become, and what its outputs mean.

    A kind is a small frozen dataclass. `reads` says what its head sees: the pooled vector of a
    sequence or every token; or that it has no head and reads what a language model gives, a number
    for each word of the `vocabulary`. `width` says how many numbers the head gives for each; `pads`
    what fills the short rows of its ragged columns; `held` which of its columns stay out of
    batches; `targets` which of those in a batch are for its head and loss alone, not for the
    encoder.

    A kind of one's own is a subclass of one of ours, or of this. A run file names it
    `module:Class`.
    """

    name: ClassVar[str]
    asks: ClassVar[tuple[str, ...]] = ("text", "label")
    """The columns of a user's own table that a task of this kind has to name."""
    reads: ClassVar[Literal["pooled", "tokens", "vocabulary"]] = "pooled"
    pads: ClassVar[Mapping[str, int]] = {}
    held: ClassVar[frozenset[str]] = frozenset()
    targets: ClassVar[frozenset[str]] = frozenset({"labels"})
    mean_over: ClassVar[Literal["items", "decisions"]] = "items"
    """What `loss` is the mean over: items, or decisions where one item may have more than another.
    """
    metrics: ClassVar[tuple[Metric, ...]]
    """The metrics that a task of this kind may have; `usual` names those it has by default."""
    usual: ClassVar[tuple[str, ...]]

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        """Return how records of a user's own table become rows of this kind."""
        raise TypeError(f"kind {cls.name}: is not made from tables")

    @classmethod
    def for_task(cls, labels: tuple[str, ...] | None, train: Source) -> Self:
        """Make the kind of a task.

        Args:
            labels: the classes, where the task says them.
            train: the training rows, to find out what the task does not say.
        """
        return cls()

    @property
    @abstractmethod
    def width(self) -> int:
        """How many outputs the head has."""

    def usual_metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics that a task has unless it says others."""
        return self.usual

    def head(self, inputs: int, make: Callable[[int, int], "nn.Module"]) -> "nn.Module":
        """Make the task's head.

        Args:
            inputs: width of what it sees.
            make: makes the head that the run file asks for, from inputs to outputs.
        """
        return make(inputs, self.width)

    @abstractmethod
    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Rows as columns; a complaint names `where` and the row's `at`."""

    def fit(self, train: "Encoded") -> Self:
        """The kind with what it has to learn from the training split before training starts."""
        return self

    def unlabelled(self, split: "Encoded") -> NDArray[np.bool_]:
        """Return which items have no label, shape `(items,)`."""
        labels = split.dense["labels"].reshape(len(split), -1)
        missing = labels < 0 if labels.dtype.kind == "i" else np.isnan(labels)
        return np.asarray(missing.any(axis=1))

    @abstractmethod
    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Mean negative log-likelihood of a batch's decisions, in nats.

        A decision is one choice among classes: an item is one, a sentence to tag has one a word.
        """

    def counted(self, batch: Mapping[str, "Tensor"], items: int) -> int:
        """Return how many items or decisions a batch's mean loss is the mean over.

        Args:
            batch: the batch's targets.
            items: how many items it has.
        """
        return items if self.mean_over == "items" else len(self.owners(batch))

    @abstractmethod
    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return the predictive distribution of each decision, shape `(decisions, classes)`.

        Where decisions differ in how many classes they have, those that one does not have get a
        probability of 0. A regression gives its means in units of the label's spread, shape
        `(items, 1)`.
        """

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Which item of the batch each decision of `distribution` is of, shape `(decisions,)`."""
        import torch

        return torch.arange(len(batch["labels"]), device=batch["labels"].device)

    @abstractmethod
    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        """Return one raw prediction an item; `score` and `answers` know what to make of them."""

    @abstractmethod
    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Raw predictions of all items of a split, in order, beside what was expected."""

    @abstractmethod
    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Raw predictions as the user reads them, one for each row: label names, numbers, texts."""

    def probabilities(
        self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]
    ) -> list[Any] | None:
        """How probable the answers are, one value for each row; None if the kind cannot say."""
        return None

    @abstractmethod
    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored | None:
        """What predicting without looking earns: the majority class, the mean; None if unknown."""

    def columns_spec(self) -> dict[str, Any]:
        """Return what of the spec decides the columns: all but what `fit` finds."""
        return self.spec()

    def spec(self) -> dict[str, Any]:
        """Return the kind as JSON-able values, for a saved model; `kinds.from_spec` reads it."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        return {"kind": self.path(), **plain}

    @classmethod
    def is_ours(cls) -> bool:
        """Return whether the kind belongs to taskmix; else it is a user's own."""
        return cls.__module__.startswith("taskmix.")

    @classmethod
    def path(cls) -> str:
        """Return what a saved model calls the kind: our name, or `module:Class` of one's own."""
        return cls.name if cls.is_ours() else f"{cls.__module__}:{cls.__qualname__}"

    @classmethod
    def version(cls) -> str:
        """Return what names the code of a kind of one's own; encoded splits depend on it."""
        if cls.is_ours():
            return ""
        return blake2b(inspect.getsource(cls).encode(), digest_size=8).hexdigest()
