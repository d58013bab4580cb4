"""Base classes of the records of a journal."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Record:
    """A line of a journal: a frozen dataclass whose `kind` names it there."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class UnitRecord(Record, ABC):
    """The outcome of one unit of a budget: a step or a round.

    Each family of deciders has a subclass; reports and progress read all of them by these methods.
    """

    step: int  # the number of the unit, from 1

    @abstractmethod
    def shares(self) -> Mapping[str, float]:
        """Return each task's share of this unit; the shares sum to one."""

    @abstractmethod
    def training_losses(self) -> Mapping[str, float]:
        """Return the mean training loss of each task that was trained on."""

    @abstractmethod
    def examples_of(self) -> Mapping[str, int]:
        """Return the number of training examples of each task, as far as it is known."""


def normalised(parts: Mapping[str, float]) -> dict[str, float]:
    """Return parts that sum to one.

    >>> normalised({"a": 3, "b": 1})
    {'a': 0.75, 'b': 0.25}
    """
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()} if total else dict(parts)
