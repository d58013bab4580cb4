"""The tasks that have names of their own, each a few declarative lines."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taskmix.errors import unknown
from taskmix.tasks.catalogue.digits import DIGITS
from taskmix.tasks.catalogue.entry import Entry, plain
from taskmix.tasks.catalogue.glue import GLUE
from taskmix.tasks.catalogue.inference import INFERENCE
from taskmix.tasks.catalogue.mrqa import MRQA
from taskmix.tasks.catalogue.multimnist import MULTIMNIST
from taskmix.tasks.catalogue.superglue import SUPERGLUE
from taskmix.tasks.catalogue.text import TEXT
from taskmix.tasks.catalogue.wnut import WNUT
from taskmix.tasks.task import Task

__all__ = ["Listed", "find", "find_late", "listing"]

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
    """A line of `taskmix tasks`.

    Args:
        name: how run files call the task.
        kind: the name of its kind.
        metrics: the names of its metrics.
        found: by split, the file that was found; `built in` where none is needed.
    """

    name: str
    kind: str
    metrics: tuple[str, ...]
    found: Mapping[str, str]


def find(name: str, data: Path | None = None) -> Task:
    """Return the task of this name.

    Args:
        name: for example `glue/rte` or `digits/left`, in any letter case.
        data: the folder that holds the official folders; None takes that of the environment
            variable `TASKMIX_DATA`.

    >>> find("digits/left").kind.labels
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    return _entry(name).task(_root(data))


def find_late(name: str, data: Path | None = None) -> Task:
    """The task of this name for a trained model; a file that is missing is no mistake until read.

    Args:
        name: for example `glue/rte` or `digits/left`, in any letter case.
        data: as for `find`.

    >>> sorted(find_late("glue/rte", Path("nowhere")).splits)
    ['dev', 'train']
    """
    return _entry(name).late(_root(data))


def _entry(name: str) -> Entry:
    entries = {plain(entry.name): entry for entry in ENTRIES}
    if plain(name) not in entries:
        raise unknown("task", name, (entry.name for entry in ENTRIES))
    return entries[plain(name)]


def listing(data: Path | None = None) -> list[Listed]:
    """Return every task of the catalogue, with what was found on disk."""
    root = _root(data)
    return [_listed(entry, root) for entry in ENTRIES]


def _listed(entry: Entry, root: Path | None) -> Listed:
    metrics = tuple(metric.name for metric in entry.metrics)
    return Listed(entry.name, entry.kind.name, metrics, entry.found(root))


def _root(data: Path | None) -> Path | None:
    named = data or os.environ.get("TASKMIX_DATA")
    return Path(named) if named else None
