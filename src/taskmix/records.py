"""What every record of a journal has in common, and what a unit of a budget leaves behind."""

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
    """What one unit of a budget (a step, a round) was spent on and what came of it.

    Each family of deciders has a record of its own; reports and progress read all of them through
    these methods.

    Args:
        step: which unit, counted from 1.
    """

    step: int

    @abstractmethod
    def shares(self) -> Mapping[str, float]:
        """Return each task's part in this unit; the parts sum to one."""

    @abstractmethod
    def training_losses(self) -> Mapping[str, float]:
        """Return the mean training loss of each task that was trained on."""

    @abstractmethod
    def examples_of(self) -> Mapping[str, int]:
        """Return how many examples of each task were trained on, as far as that is known."""


def normalised(parts: Mapping[str, float]) -> dict[str, float]:
    """Return parts that sum to one.

    >>> normalised({"a": 3, "b": 1})
    {'a': 0.75, 'b': 0.25}
    """
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()} if total else dict(parts)
