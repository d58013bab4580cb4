"""Tab-separated values: of benchmarks, in which a quotation mark is text, and of a user's own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from taskmix.tasks.readers.csv import Csv
from taskmix.tasks.readers.lines import lines
from taskmix.tasks.readers.quoting import is_quoted
from taskmix.tasks.readers.record import FileRecord, Reader
from taskmix.tasks.readers.table import header, too_wide


@dataclass(frozen=True)
class Tsv:
    """Reads a user's own tab-separated values, whether they are quoted as in CSV or not.

    The file decides: `quoting.is_quoted` says how.
    """

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Return the records of a file in order, read as they are asked for."""
        reader: Reader = Csv("\t") if is_quoted(path) else PlainTsv()
        return reader.records(path)


@dataclass(frozen=True)
class PlainTsv:
    """Reads tab-separated values in which a quotation mark is text; blank lines hold no record.

    Args:
        header: the columns' names where the file does not begin with them.
        wide: what a row with more columns than the header gets: an error, or (as the readers of
            the official benchmarks do) the columns beyond it left alone.
    """

    header: tuple[str, ...] | None = None
    wide: Literal["error", "cut"] = "error"

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Yield the records of a file in order, read as they are asked for."""
        numbered = ((at, line) for at, line in lines(path) if line.strip("\r "))
        names = self.header
        if names is None:
            names = header(path, next(numbered, (1, ""))[1].split("\t"))
        for at, line in numbered:
            fields = line.split("\t")
            record = FileRecord(str(path), at, dict(zip(names, fields, strict=False)), names)
            if len(fields) > len(names) and self.wide == "error":
                raise too_wide(record, len(fields))
            yield record
