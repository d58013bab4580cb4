"""Values with quoting, as spreadsheets and libraries of tables write them."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from taskmix.errors import UserError
from taskmix.tasks.readers.lines import LONGEST_LINE, lines
from taskmix.tasks.readers.record import FileRecord
from taskmix.tasks.readers.table import header, too_wide


@dataclass(frozen=True)
class Csv:
    """Reads quoted values; the first row is the header, blank lines hold no record.

    Args:
        delimiter: what stands between them.
    """

    delimiter: str = ","

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Yield the records of a file in order, read as they are asked for."""
        numbered = _rows(path, self.delimiter)
        names = header(path, next(numbered, (1, [""]))[1])
        for at, fields in numbered:
            record = FileRecord(str(path), at, dict(zip(names, fields, strict=False)), names)
            if len(fields) > len(names):
                raise too_wide(record, len(fields))
            yield record


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    text = (line + "\n" for _, line in lines(path))
    parser = csv.reader(text, delimiter=delimiter, strict=True)
    while True:
        at = parser.line_num + 1
        try:
            fields = _next(parser)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{path}, row {at}: not well-formed CSV ({error}).") from None
        if fields:
            yield at, fields


def _next(parser: "Iterator[list[str]]") -> list[str]:
    """One row, with the module's process-wide limit lifted only for as long as that takes."""
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        return next(parser)
    finally:
        csv.field_size_limit(limit)
