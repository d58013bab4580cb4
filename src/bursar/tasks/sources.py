"""Where the rows of a split come from: a file, read by a reader, given a shape."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from bursar.errors import UserError
from bursar.tasks.readers.record import Reader
from bursar.tasks.rows import Row
from bursar.tasks.shapes import Shape, Skip

BLOCK = 2**20
READING = "1"
"""Counts the changes to what readers and shapes make of the same bytes."""


@dataclass(frozen=True)
class FileSource:
    r"""A file whose rows are read as they are asked for, never all of it at once.

    Args:
        path: the file, gzipped or plain.
        reader: its format.
        shape: which column is which.

    >>> from tempfile import TemporaryDirectory
    >>> from bursar.tasks.readers import Tsv
    >>> from bursar.tasks.shapes import Texts
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
        """The rows in order; a file without any is an error."""
        empty = True
        for item in self._items():
            if not isinstance(item, Skip):
                empty = False
                yield item
        if empty:
            raise UserError(f"{self.path}: has no rows, expected at least one.")

    def skips(self) -> Mapping[str, int]:
        """How many records each documented rule passes over."""
        if not self.shape.skips:
            return {}
        return Counter(item.rule for item in self._items() if isinstance(item, Skip))

    def fingerprint(self) -> str:
        """Names the file's bytes and the way they are read."""
        digest = blake2b(digest_size=16)
        digest.update(repr((READING, self.reader, self.shape)).encode())
        try:
            with self.path.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
        except FileNotFoundError:
            raise UserError(f"{self.path}: no such file.") from None
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}).") from None
        return digest.hexdigest()

    def _items(self) -> Iterator[Row | Skip]:
        for record in self.reader.records(self.path):
            yield from self.shape.rows(record)
