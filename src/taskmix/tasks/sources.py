"""Files as sources of rows."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

from taskmix.errors import UserError
from taskmix.files import hash_of
from taskmix.tasks.readers.base import FileRecord, MissingColumnError, Reader
from taskmix.tasks.readers.lines import raw
from taskmix.tasks.rows import Row, Source
from taskmix.tasks.shapes import Shape, Skip, Texts

BLOCK = 2**20
MAX_NAMED = 5  # rows in a message
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
        return converted(self.shape, lambda: self.reader.records(self.path))


@dataclass(frozen=True)
class MemorySource:
    """Rows in memory, as mappings with the columns of a file."""

    records: Sequence[Mapping[str, Any]]
    shape: Shape
    where = "rows"

    def rows(self) -> Iterator[Row]:
        return unskipped(self._items(), self.where)

    def skips(self) -> Mapping[str, int]:
        return skipped(self._items()) if self.shape.skips else {}

    def fingerprint(self) -> str:
        return hash_of(repr((READER_VERSION, self.shape, list(self.records))))

    def _items(self) -> Iterator[Row | Skip]:
        return converted(self.shape, self._records)

    def _records(self) -> Iterator[FileRecord]:
        for at, values in enumerate(self.records, 1):
            yield FileRecord(self.where, at, values)


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


def converted(shape: Shape, read: Callable[[], Iterator[FileRecord]]) -> Iterator[Row | Skip]:
    """Yield the rows of records; an error names the first wrong one and counts the others."""
    if isinstance(shape, Texts):
        shape = shape.settled(read())
    records = read()
    for record in records:
        try:
            rows = list(shape.rows(record))
        except MissingColumnError:
            raise
        except UserError as error:
            raise _with_others(error, shape, records) from None
        yield from rows


def _with_others(error: UserError, shape: Shape, records: Iterator[FileRecord]) -> UserError:
    """Return an error about a record with the numbers of the wrong ones behind it."""
    others = []
    for record in records:
        try:
            list(shape.rows(record))
        except UserError:
            others.append(str(record.at))
    if not others:
        return error
    more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    rows = f"{len(others)} more row{'' if len(others) == 1 else 's'}"
    return UserError(
        f"{error} The same with {rows}: {', '.join(others[:MAX_NAMED])}{more}; correct or remove"
        " them."
    )


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
    """Return a hash of files and of the reading options."""
    digest = blake2b(repr((READER_VERSION, reading)).encode(), digest_size=16)
    for path in paths:
        with raw(path) as file:
            while block := file.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()
