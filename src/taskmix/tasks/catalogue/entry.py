"""Entries of the catalogue: a task, and the layouts of its official files."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from taskmix.tasks.kinds import Kind
from taskmix.tasks.metrics import Metric
from taskmix.tasks.readers.base import Reader
from taskmix.tasks.rows import Source
from taskmix.tasks.shapes import Shape
from taskmix.tasks.sources import FileSource, MissingSource
from taskmix.tasks.task import Task

HIDDEN_LABELS = frozenset({"test", "test_mismatched", "diagnostic"})
"""The splits of GLUE and SuperGLUE whose labels are not published."""


@dataclass(frozen=True)
class Entry(ABC):
    """A task of the catalogue."""

    name: str
    kind: Kind
    metrics: tuple[Metric, ...]

    def task(self, root: Path | None) -> Task:
        """Return the task; a missing file is an error when it is read."""
        sources = self.sources(root)
        missing = {
            split: self.missing(root, split) for split in ("train", "dev") if split not in sources
        }
        return Task(self.name, self.kind, {**missing, **sources}, self.metrics)

    def found(self, root: Path | None) -> Mapping[str, str]:
        """Return the file of each split that exists."""
        return {split: source.where for split, source in self.sources(root).items()}

    @abstractmethod
    def sources(self, root: Path | None) -> Mapping[str, Source]:
        """Return the splits whose files exist."""

    @abstractmethod
    def missing(self, root: Path | None, split: str) -> MissingSource: ...

    def complaint(self, root: Path | None, file: str) -> str:
        if root is None:
            return (
                f"task {self.name}: its files are looked for in the folder that --data or the "
                "environment variable TASKMIX_DATA names, and neither is given."
            )
        if not root.is_dir():
            return f"task {self.name}: the data folder {root} is not there."
        path = root / file
        return f"task {self.name}: no file {path} (nor {path.name}.gz)."


@dataclass(frozen=True)
class Layout:
    """The files of one distribution of a data set."""

    files: Mapping[str, str]  # by split, the path under one of `folders`, without .gz
    reader: Reader
    shape: Shape
    folders: tuple[str, ...]  # under the data folder, in any letter case; the first that exists
    special: Mapping[str, tuple[Reader, Shape]] = field(default_factory=dict)  # of single splits
    unlabelled: frozenset[str] = HIDDEN_LABELS  # the splits without labels

    def sources(self, root: Path) -> dict[str, FileSource]:
        paths = ((split, find_file(root, self.folders, file)) for split, file in self.files.items())
        return {split: self._source(split, path) for split, path in paths if path}

    def _source(self, split: str, path: Path) -> FileSource:
        reader, shape = self.special.get(split, (self.reader, self.shape))
        hidden = split in self.unlabelled and split not in self.special
        return FileSource(path, reader, shape.without_labels() if hidden else shape)


@dataclass(frozen=True)
class FilesEntry(Entry):
    """A task with official files; the first layout whose training file exists is read."""

    layouts: tuple[Layout, ...]

    def sources(self, root: Path | None) -> dict[str, FileSource]:
        if root is None:
            return {}
        candidates = [layout.sources(root) for layout in self.layouts]
        complete = (sources for sources in candidates if "train" in sources)
        return next(complete, max(candidates, key=len))

    def missing(self, root: Path | None, split: str) -> MissingSource:
        layout = self.layouts[0]
        file = layout.files[split]
        complaint = self.complaint(root, f"{layout.folders[0]}/{file}")
        return MissingSource(file, complaint, layout.shape, layout.reader)


@dataclass(frozen=True)
class BuiltInEntry(Entry):
    """A task that needs no files."""

    splits: Mapping[str, Source]

    def sources(self, root: Path | None) -> Mapping[str, Source]:
        return self.splits

    def found(self, root: Path | None) -> Mapping[str, str]:
        return dict.fromkeys(self.splits, "built in")

    def missing(self, root: Path | None, split: str) -> MissingSource:
        raise AssertionError(f"task {self.name}: no split {split}")


def find_file(root: Path, folders: tuple[str, ...], name: str) -> Path | None:
    """Return the first file of this name in the folders under a root, gzipped or plain."""
    paths = (f"{folder}/{name}{suffix}" for folder in folders for suffix in ("", ".gz"))
    return next(filter(None, (_find_spelling(root, path) for path in paths)), None)


def _find_spelling(root: Path, path: str) -> Path | None:
    """Return a file under a root, whatever the case and hyphens of its path."""
    current = root
    for part in filter(lambda part: part != ".", path.split("/")):
        if not (current / part).exists():
            names = sorted(current.iterdir()) if current.is_dir() else []
            same = [name.name for name in names if plain(name.name) == plain(part)]
            if not same:
                return None
            part = same[0]
        current /= part
    return current


def plain(name: str) -> str:
    """Return a name in lower case without hyphens and underscores."""
    return name.lower().replace("-", "").replace("_", "")
