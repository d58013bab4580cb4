"""An entry of the catalogue: a task, and the layouts in which its official files come."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from taskmix.errors import UserError
from taskmix.tasks.kinds import Kind
from taskmix.tasks.metrics import Metric
from taskmix.tasks.readers.record import Reader
from taskmix.tasks.shapes import Shape
from taskmix.tasks.sources import FileSource, LateSource
from taskmix.tasks.task import Task

KEPT_SECRET = frozenset({"test", "test_mismatched", "diagnostic"})
"""The splits whose labels GLUE and SuperGLUE keep to themselves."""


class Entry(Protocol):
    """A task that has a name of its own."""

    @property
    def name(self) -> str:
        """How run files call it."""

    @property
    def kind(self) -> Kind:
        """What its rows become."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Its score is their mean."""

    def task(self, root: Path | None) -> Task:
        """Return the task, or one sentence about the file that is missing."""

    def late(self, root: Path | None) -> Task:
        """The task of a trained model: a file that is missing is complained of when it is read."""

    def found(self, root: Path | None) -> Mapping[str, str]:
        """Return the file of each split that is there."""


@dataclass(frozen=True)
class Layout:
    """The files of one distribution of a data set.

    Args:
        files: by split, the file under the task's folder, gzipped or plain.
        reader: their format.
        shape: which column is which.
        folders: where the files lie under the data folder, in any letter case, the first that is
            there; `.` is the data folder itself.
        special: readers and shapes of the splits that come in another format.
        unlabelled: the splits that come without labels.
    """

    files: Mapping[str, str]
    reader: Reader
    shape: Shape
    folders: tuple[str, ...]
    special: Mapping[str, tuple[Reader, Shape]] = field(default_factory=dict)
    unlabelled: frozenset[str] = KEPT_SECRET

    def sources(self, root: Path) -> dict[str, FileSource]:
        """Return the splits whose files are there."""
        paths = ((split, self.path(root, split)) for split in self.files)
        return {split: self._source(split, path) for split, path in paths if path}

    def path(self, root: Path, split: str) -> Path | None:
        """Return the file of a split, if it is there."""
        for folder in self.folders:
            for name in (self.files[split], f"{self.files[split]}.gz"):
                found = spelled(root, f"{folder}/{name}")
                if found:
                    return found
        return None

    def _source(self, split: str, path: Path) -> FileSource:
        reader, shape = self.special.get(split, (self.reader, self.shape))
        hidden = split in self.unlabelled and split not in self.special
        return FileSource(path, reader, shape.without_labels() if hidden else shape)


@dataclass(frozen=True)
class FilesEntry:
    """A task whose official files a user brings.

    Args:
        name: how run files call it.
        kind: what its rows become.
        metrics: its score is their mean.
        layouts: the distributions it comes in; the first whose training file is there is taken.
    """

    name: str
    kind: Kind
    metrics: tuple[Metric, ...]
    layouts: tuple[Layout, ...]

    def task(self, root: Path | None) -> Task:
        """Return the task, or one sentence about the file that is missing."""
        folder = needs_root(self.name, root)
        sources = self._sources(folder)
        for split in ("train", "dev"):
            if split not in sources:
                raise self._absent(folder, split)
        return Task(self.name, self.kind, sources, self.metrics)

    def late(self, root: Path | None) -> Task:
        """The task of a trained model: a file that is missing is complained of when it is read."""
        there = self._sources(root) if root is not None and root.is_dir() else {}
        layout = self.layouts[0]
        absent = {
            split: LateSource(file, layout.shape, partial(self._find, root, split), layout.reader)
            for split, file in layout.files.items()
            if split in ("train", "dev") and split not in there
        }
        return Task(self.name, self.kind, {**absent, **there}, self.metrics)

    def _find(self, root: Path | None, split: str) -> FileSource:
        folder = needs_root(self.name, root)
        sources = self._sources(folder)
        if split not in sources:
            raise self._absent(folder, split)
        return sources[split]

    def found(self, root: Path | None) -> Mapping[str, str]:
        """Return the file of each split that is there."""
        sources = self._sources(root) if root else {}
        return {split: str(source.path) for split, source in sources.items()}

    def _sources(self, root: Path) -> dict[str, FileSource]:
        candidates = [layout.sources(root) for layout in self.layouts]
        whole = (each for each in candidates if "train" in each)
        return next(whole, max(candidates, key=len))

    def _absent(self, root: Path, split: str) -> UserError:
        layout = self.layouts[0]
        path = root / layout.folders[0] / layout.files[split]
        return UserError(f"task {self.name}: no file {path} (nor {path.name}.gz).")


def needs_root(name: str, root: Path | None) -> Path:
    """Return the data folder, or one sentence about how to name it."""
    if root is None:
        raise UserError(
            f"task {name}: its files are looked for in the folder that --data or the environment "
            "variable TASKMIX_DATA names, and neither is given."
        )
    if not root.is_dir():
        raise UserError(f"task {name}: the data folder {root} is not there.")
    return root


def spelled(root: Path, path: str) -> Path | None:
    """Return a file or folder under a root, whichever way its letters and hyphens are spelled."""
    found = root
    for part in path.split("/"):
        if part != ".":
            match = next(_matches(found, part), None)
            if match is None:
                return None
            found = match
    return found if found.exists() else None


def _matches(folder: Path, part: str) -> Iterator[Path]:
    if (folder / part).exists():
        yield folder / part
    elif folder.is_dir():
        yield from (each for each in sorted(folder.iterdir()) if plain(each.name) == plain(part))


def plain(name: str) -> str:
    """Return a name without what its spellings differ in.

    >>> plain("SST-2") == plain("sst2")
    True
    """
    return name.lower().replace("-", "").replace("_", "")
