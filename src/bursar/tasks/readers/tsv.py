"""Tab-separated values in which a quotation mark is text."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bursar.errors import UserError
from bursar.tasks.readers.lines import lines
from bursar.tasks.readers.record import Record


@dataclass(frozen=True)
class Tsv:
    """Reads tab-separated values; blank lines hold no record.

    Args:
        header: the columns' names where the file does not begin with them.
        wide: what a row with more columns than the header gets: an error, or (as the readers of
            the official benchmarks do) the columns beyond it left alone.
    """

    header: tuple[str, ...] | None = None
    wide: Literal["error", "cut"] = "error"

    def records(self, path: Path) -> Iterator[Record]:
        """The records of a file in order, read as they are asked for."""
        numbered = ((at, line) for at, line in lines(path) if line.strip("\r "))
        names = self.header
        if names is None:
            names = header(path, next(numbered, (1, ""))[1].split("\t"))
        for at, line in numbered:
            fields = line.split("\t")
            record = Record(str(path), at, dict(zip(names, fields, strict=False)), names)
            if len(fields) > len(names) and self.wide == "error":
                raise too_wide(record, len(fields))
            yield record


def header(path: Path, names: list[str]) -> tuple[str, ...]:
    """The names of the columns, each of which must be there once."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{path}, row 1: the header has column {twice[0]!r} twice.")
    return tuple(names)


def too_wide(record: Record, found: int) -> UserError:
    """The sentence for a row that has more columns than the header."""
    return record.error(f"too many columns, {found} where the header has {len(record.columns)}")
