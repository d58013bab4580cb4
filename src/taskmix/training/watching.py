"""Watchers, which are notified of a run's progress."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmix.records import UnitRecord
    from taskmix.training.folder import Scores


class Watcher:
    """Base class of progress bars and logs: a subclass overrides the methods that it needs."""

    def reading(self, task: str, split: str, rows: int) -> None:
        """A split is being read and encoded; this many rows are done."""

    def working(self, text: str) -> None:
        """A part of a long unit of the budget begins, described by the text."""

    def advanced(self, record: "UnitRecord") -> None:
        """A unit of the budget was spent."""

    def spent(self, part: float) -> None:
        """This share of the budget is spent, from 0 to about 1."""

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        """The run was evaluated."""


class Watchers(Watcher):
    """Several watchers as one."""

    def __init__(self, watchers: Sequence[Watcher] = ()) -> None:
        self._watchers = tuple(watchers)

    def reading(self, task: str, split: str, rows: int) -> None:
        for watcher in self._watchers:
            watcher.reading(task, split, rows)

    def working(self, text: str) -> None:
        for watcher in self._watchers:
            watcher.working(text)

    def advanced(self, record: "UnitRecord") -> None:
        for watcher in self._watchers:
            watcher.advanced(record)

    def spent(self, part: float) -> None:
        for watcher in self._watchers:
            watcher.spent(part)

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        for watcher in self._watchers:
            watcher.evaluated(step, scores, score, best)
