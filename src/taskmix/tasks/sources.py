"""Where the rows of a split come from: a file, read by a reader, given a shape."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from taskmix.errors import UserError
from taskmix.tasks.readers.lines import raw
from taskmix.tasks.readers.record import FileRecord, Reader
from taskmix.tasks.rows import Row, Source
from taskmix.tasks.shapes import Shape, Skip, Texts

BLOCK = 2**20
READING = "2"
"""Counts the changes to what readers and shapes make of the same bytes."""


@dataclass(frozen=True)
class FileSource:
    r"""A file whose rows are read as they are asked for, never all of it at once.

    Args:
        path: the file, gzipped or plain.
        reader: its format.
        shape: which column is which.

    >>> from tempfile import TemporaryDirectory
    >>> from taskmix.tasks.readers import Tsv
    >>> from taskmix.tasks.shapes import Texts
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.tsv")
    ...     _ = path.write_text("text\tlabel\nhello\tgreeting\n")
    ...     rows = list(FileSource(path, Tsv(), Texts("text", label="label")).rows())
    >>> rows[0].at, rows[0].text, rows[0].label
    (2, 'hello', 'greeting')
    """

    path: Path
    reader: Reader
    shape: Shape

    @property
    def where(self) -> str:
        """What a complaint calls it."""
        return str(self.path)

    def rows(self) -> Iterator[Row]:
        """Return the rows in order; a file without any is an error."""
        return unskipped(self._items(), self.where)

    def skips(self) -> Mapping[str, int]:
        """Return how many records each documented rule passes over."""
        return skipped(self._items()) if self.shape.skips else {}

    def fingerprint(self) -> str:
        """Return what names the file's bytes and the way they are read; found once."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint((self.reader, self.shape), self.path)

    def _items(self) -> Iterator[Row | Skip]:
        shape = settled(self.shape, lambda: self.reader.records(self.path))
        for record in self.reader.records(self.path):
            yield from shape.rows(record)


@dataclass(frozen=True, eq=False)
class LateSource:
    """A split that is looked for when it is read: a trained model can be used without it.

    Args:
        where: what a complaint calls it.
        shape: which column is which; None where it is not made from tables.
        find: finds the split, or raises one sentence about what is missing.
        reader: the format of its file; None where there is none.
    """

    where: str
    shape: Shape | None
    find: Callable[[], Source]
    reader: Reader | None = None

    @cached_property
    def _found(self) -> Source:
        return self.find()

    def rows(self) -> Iterator[Row]:
        """Return the rows in order."""
        return self._found.rows()

    def skips(self) -> Mapping[str, int]:
        """Return how many records each documented rule passes over."""
        return self._found.skips()

    def fingerprint(self) -> str:
        """Names the content of the split."""
        return self._found.fingerprint()


def settled(shape: Shape, records: Callable[[], Iterable[FileRecord]]) -> Shape:
    """Return the shape with what it has to find in the records before it reads them."""
    return shape.settled(records()) if isinstance(shape, Texts) else shape


def unskipped(items: Iterator[Row | Skip], where: str) -> Iterator[Row]:
    """Yield the rows that no rule passes over; there must be one."""
    empty = True
    for item in items:
        if not isinstance(item, Skip):
            empty = False
            yield item
    if empty:
        raise UserError(f"{where}: has no rows, expected at least one.")


def skipped(items: Iterator[Row | Skip]) -> Mapping[str, int]:
    """Return how many records each rule passes over."""
    return Counter(item.rule for item in items if isinstance(item, Skip))


def fingerprint(reading: object, *paths: Path) -> str:
    """Names the bytes of files, and a way of reading them by its repr."""
    digest = blake2b(repr((READING, reading)).encode(), digest_size=16)
    for path in paths:
        with raw(path) as file:
            while block := file.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()
