"""Files as sources of rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

from taskmix.errors import UserError
from taskmix.tasks.readers.base import FileRecord, Reader
from taskmix.tasks.readers.lines import raw
from taskmix.tasks.rows import Row, Source
from taskmix.tasks.shapes import Shape, Skip, Texts

BLOCK = 2**20
READER_VERSION = "2"
"""Version of readers and shapes: incremented when they make other rows of the same bytes."""


@dataclass(frozen=True)
class FileSource:
    """A file, gzipped or plain, whose rows are read one by one."""

    path: Path
    reader: Reader
    shape: Shape

    @property
    def where(self) -> str:
        return str(self.path)

    def check(self) -> None:
        if not self.path.exists():
            raise UserError(f"{self.path}: no such file.")

    def rows(self) -> Iterator[Row]:
        return unskipped(self._items(), self.where)

    def skips(self) -> Mapping[str, int]:
        return skipped(self._items()) if self.shape.skips else {}

    def fingerprint(self) -> str:
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint((self.reader, self.shape), self.path)

    def _items(self) -> Iterator[Row | Skip]:
        shape = settled(self.shape, lambda: self.reader.records(self.path))
        for record in self.reader.records(self.path):
            yield from shape.rows(record)


@dataclass(frozen=True)
class MissingSource:
    """A split whose file is missing, which a trained model does not need."""

    where: str
    complaint: str
    shape: Shape | None = None
    reader: Reader | None = None

    def check(self) -> NoReturn:
        raise UserError(self.complaint)

    def rows(self) -> Iterator[Row]:
        self.check()

    def skips(self) -> Mapping[str, int]:
        self.check()

    def fingerprint(self) -> str:
        self.check()


def check_file(source: Source) -> None:
    """Raise if the file of a source is missing, before anything is read."""
    if hasattr(source, "check"):
        source.check()


def settled(shape: Shape, records: Callable[[], Iterable[FileRecord]]) -> Shape:
    """Return the shape with the separator of the labels in these records."""
    return shape.settled(records()) if isinstance(shape, Texts) else shape


def unskipped(items: Iterator[Row | Skip], where: str) -> Iterator[Row]:
    """Yield the rows without the skips; raise if there is none."""
    empty = True
    for item in items:
        if not isinstance(item, Skip):
            empty = False
            yield item
    if empty:
        raise UserError(f"{where}: has no rows, expected at least one.")


def skipped(items: Iterator[Row | Skip]) -> Mapping[str, int]:
    return Counter(item.rule for item in items if isinstance(item, Skip))


def fingerprint(reading: object, *paths: Path) -> str:
    """Return a hash of files and of the way in which they are read."""
    digest = blake2b(repr((READER_VERSION, reading)).encode(), digest_size=16)
    for path in paths:
        with raw(path) as file:
            while block := file.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()
