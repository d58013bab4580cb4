"""A task: something to learn."""

from collections.abc import Mapping
from dataclasses import dataclass

from taskmix.errors import UserError
from taskmix.tasks.kinds.base import Kind
from taskmix.tasks.metrics import Metric
from taskmix.tasks.rows import Source


@dataclass(frozen=True, eq=False)
class Task:
    """Something to learn: a name, a kind with its labels, metrics, and its splits.

    Nothing is read before it is asked for.

    Args:
        name: how run files, journals and tables call it.
        kind: what its rows become and what its outputs mean.
        splits: where the rows come from; `train` and `dev`, and any others.
        metrics: its score is their mean.
    """

    name: str
    kind: Kind
    splits: Mapping[str, Source]
    metrics: tuple[Metric, ...]

    def split(self, name: str) -> Source:
        """Return the source of a split, or one sentence about the splits that there are."""
        try:
            return self.splits[name]
        except KeyError:
            there = ", ".join(self.splits) or "none"
            raise UserError(f"task {self.name}: no split {name!r}; there are: {there}") from None
