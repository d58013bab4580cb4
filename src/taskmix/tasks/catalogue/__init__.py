"""The catalogue of named tasks."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taskmix.errors import unknown
from taskmix.tasks.catalogue.corpora import INFERENCE, MRQA, WNUT
from taskmix.tasks.catalogue.digits import DIGITS
from taskmix.tasks.catalogue.entry import Entry, plain
from taskmix.tasks.catalogue.glue import GLUE
from taskmix.tasks.catalogue.multimnist import MULTIMNIST
from taskmix.tasks.catalogue.superglue import SUPERGLUE
from taskmix.tasks.catalogue.text import TEXT
from taskmix.tasks.task import Task

__all__ = ["Listed", "find", "listing"]

ENTRIES: tuple[Entry, ...] = (
    *DIGITS,
    *MULTIMNIST,
    *GLUE,
    *SUPERGLUE,
    *INFERENCE,
    *MRQA,
    *WNUT,
    *TEXT,
)


@dataclass(frozen=True)
class Listed:
    """A line of `taskmix tasks`."""

    name: str
    kind: str
    metrics: tuple[str, ...]
    found: Mapping[str, str]  # the file of each split that exists, or `built in`


def find(name: str, data: Path | None = None) -> Task:
    """Return the task of this name, in any letter case; `data` is the folder of its files."""
    entries = {plain(entry.name): entry for entry in ENTRIES}
    if plain(name) not in entries:
        raise unknown("task", name, (entry.name for entry in ENTRIES))
    return entries[plain(name)].task(_root(data))


def listing(data: Path | None = None) -> list[Listed]:
    """Return every task of the catalogue with the files that exist."""
    root = _root(data)
    return [
        Listed(
            entry.name,
            entry.kind.name,
            tuple(metric.name for metric in entry.metrics),
            entry.found(root),
        )
        for entry in ENTRIES
    ]


def _root(data: Path | None) -> Path | None:
    folder = data or os.environ.get("TASKMIX_DATA")
    return Path(folder) if folder else None
