"""The base class of task kinds: their columns, head, loss and predictions."""

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.files import cache_folder, cached
from taskmix.tasks.metrics import Metric
from taskmix.tasks.rows import Row, Source
from taskmix.tasks.shapes import ColumnMap, Shape

if TYPE_CHECKING:
    from torch import Tensor, nn

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer

Array = NDArray[Any]
IGNORE_INDEX = -100
"""The label of a position without one, which torch's losses ignore."""
FACT = "fact.json"


@dataclass(frozen=True, slots=True)
class Columns:
    """A chunk of encoded items, ready to be stored.

    Batches are made of items. An item is a row, or a window of a long one, and has one sequence, or
    several (the choices of a `choose` task).
    """

    dense: Mapping[str, Array]  # first axis: items
    ragged: Mapping[str, Sequence[Array]] = field(default_factory=dict)  # an array a sequence
    per_sequence: Mapping[str, Array] = field(default_factory=dict)  # first axis: sequences
    sequences: Sequence[int] | None = None  # how many each item has; None for one each
    # How many each row has; None for one each. Where given, the encoded split has a dense column
    # `row`, the row number of each item.
    items: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """Predicted and expected values, the arguments of a metric."""

    predicted: Sequence[Any]
    expected: Sequence[Any]
    groups: Sequence[Any] | None = None


def cached_fact(name: str, source: Source, find: Callable[[], Any]) -> Any:
    """Return a JSON-able fact about a source from the cache; compute it by `find` if need be."""
    return cached(
        cache_folder(None, "found") / f"{name}-{source.fingerprint()}",
        lambda aside: (aside / FACT).write_text(json.dumps(find())),
        lambda folder: json.loads((folder / FACT).read_text()),
    )


class Kind(ABC):
    """How a task's rows are encoded, and how its outputs become a loss and predictions.

    A kind is a small frozen dataclass. A user's kind is a subclass of this or of one of ours; a run
    file names it `module:Class`.
    """

    name: ClassVar[str]
    asks: ClassVar[tuple[str, ...]] = ("text", "label")  # columns that a user's task has to name
    # The input of the head: the pooled vector of a sequence, or every token. A kind that reads the
    # vocabulary has no head and takes the logits of a language model.
    reads: ClassVar[Literal["pooled", "tokens", "vocabulary"]] = "pooled"
    pads: ClassVar[Mapping[str, int]] = {}  # padding values of its ragged columns
    held: ClassVar[frozenset[str]] = frozenset()  # columns that stay out of batches
    targets: ClassVar[frozenset[str]] = frozenset({"labels"})  # for the head and loss alone
    # `loss` is the mean over items, or over decisions where items differ in their number.
    mean_over: ClassVar[Literal["items", "decisions"]] = "items"
    metrics: ClassVar[tuple[Metric, ...]]
    usual: ClassVar[tuple[str, ...]]  # names of the default metrics

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        """Return the shape that makes rows of this kind from a user's table."""
        raise TypeError(f"kind {cls.name}: is not made from tables")

    @classmethod
    def for_task(cls, labels: tuple[str, ...] | None, train: Source) -> Self:
        """Make the kind of a task; without `labels`, they are found in the training rows."""
        return cls()

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of outputs of the head."""

    def usual_metrics(self) -> tuple[str, ...]:
        return self.usual

    def head(self, inputs: int, make: Callable[[int, int], "nn.Module"]) -> "nn.Module":
        """Make the head; `make` makes that of the run file from its input and output width."""
        return make(inputs, self.width)

    @abstractmethod
    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Encode rows as columns; an error names `where` and the row's `at`."""

    def fit(self, train: "Encoded") -> Self:
        """Return the kind with its parameters estimated on the training split."""
        return self

    def unlabelled(self, split: "Encoded") -> NDArray[np.bool_]:
        """Return a mask of the items without a label, shape `(items,)`."""
        labels = split.dense["labels"].reshape(len(split), -1)
        missing = labels < 0 if labels.dtype.kind == "i" else np.isnan(labels)
        return np.asarray(missing.any(axis=1))

    @abstractmethod
    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return the mean negative log-likelihood of a batch's decisions, in nats."""
        # A decision is one choice among classes: mostly an item, in tagging a word.

    def counted(self, batch: Mapping[str, "Tensor"], items: int) -> int:
        """Return the number of items or decisions in the mean of a batch's loss."""
        return items if self.mean_over == "items" else len(self.owners(batch))

    @abstractmethod
    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return the predictive distribution of each decision, shape `(decisions, classes)`.

        Where decisions differ in their classes, a missing class has the probability 0. A
        regression returns its standardised means, shape `(items, 1)`.
        """

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return the item index of each decision of `distribution`, shape `(decisions,)`."""
        import torch

        return torch.arange(len(batch["labels"]), device=batch["labels"].device)

    @abstractmethod
    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        """Return one raw prediction an item, for `scored` and `answers`."""

    @abstractmethod
    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Return the predicted and expected values of a split, from its raw predictions."""

    @abstractmethod
    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Return one answer a row as the user reads it: a label name, number or text."""

    def probabilities(
        self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]
    ) -> list[Any] | None:
        """Return the probabilities of the answers, one value a row; None if the kind has none."""
        return None

    @abstractmethod
    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored | None:
        """Return the majority-class or mean baseline; None if there is none."""

    def columns_spec(self) -> dict[str, Any]:
        """Return the part of the spec that determines the columns: all but the result of `fit`."""
        return self.spec()

    def spec(self) -> dict[str, Any]:
        """Return the kind as JSON-able values, for a saved model; `kinds.from_spec` reads it."""
        values = {column.name: getattr(self, column.name) for column in fields(self)}  # type: ignore[arg-type]
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        return {"kind": self.path(), **plain}

    @classmethod
    def is_ours(cls) -> bool:
        """Return whether the kind belongs to taskmix, and not to a user."""
        return cls.__module__.startswith("taskmix.")

    @classmethod
    def path(cls) -> str:
        """Return the kind's name in a saved model; `module:Class` for a user's."""
        return cls.name if cls.is_ours() else f"{cls.__module__}:{cls.__qualname__}"

    @classmethod
    def version(cls) -> str:
        """Return a hash of the code of a user's kind, on which encoded splits depend."""
        if cls.is_ours():
            return ""
        try:
            code = inspect.getsource(cls)
        except OSError:
            raise UserError(
                f"kind {cls.path()}: expected a class in a file, because its code is part of the "
                "cache's key, found none; write it to a module"
            ) from None
        return blake2b(code.encode(), digest_size=8).hexdigest()
