"""Watchers: objects that are told how a run goes on."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from taskmix.records import UnitRecord
from taskmix.training.folder import Scores


class Watcher(Protocol):
    """Is told of all that happens in a run: a progress bar, a log, a test."""

    def reading(self, task: str, split: str, rows: int) -> None:
        """A split is being read and encoded; so many rows are done."""

    def working(self, text: str) -> None:
        """What is being done within a long unit of the budget."""

    def advanced(self, record: UnitRecord) -> None:
        """A unit of the budget was spent."""

    def evaluated(self, step: int, scores: Mapping[str, Scores], score: float, best: bool) -> None:
        """The run was scored."""


@runtime_checkable
class BudgetWatcher(Protocol):
    """A watcher that is told, too, how much of the budget is spent."""

    def spent(self, part: float) -> None:
        """So large a part of the budget is spent, from 0 to about 1."""


class Watchers:
    """Several watchers as one.

    Args:
        watchers: who is told.
    """

    def __init__(self, watchers: Sequence[Watcher] = ()) -> None:
        self._watchers = tuple(watchers)

    def reading(self, task: str, split: str, rows: int) -> None:
        """A split is being read and encoded."""
        for watcher in self._watchers:
            watcher.reading(task, split, rows)

    def working(self, text: str) -> None:
        """What is being done within a long unit of the budget."""
        for watcher in self._watchers:
            watcher.working(text)

    def advanced(self, record: UnitRecord) -> None:
        """A unit of the budget was spent."""
        for watcher in self._watchers:
            watcher.advanced(record)

    def spent(self, part: float) -> None:
        """So large a part of the budget is spent."""
        for watcher in self._watchers:
            if isinstance(watcher, BudgetWatcher):
                watcher.spent(part)

    def evaluated(self, step: int, scores: Mapping[str, Scores], score: float, best: bool) -> None:
        """The run was scored."""
        for watcher in self._watchers:
            watcher.evaluated(step, scores, score, best)
