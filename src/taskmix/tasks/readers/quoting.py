"""Whether the quotation marks of a tab-separated file are quoting, as in CSV, or text."""

# Libraries that write tables quote a field that holds a tab, a line break or a quotation mark, and
# double the marks inside. In other files, quotation marks are text. Nearly every file shows which:
#
# - Its marks are text if they cannot all be quoting: one is inside a field that does not begin
#   with one, or a quoted reading gives a row another number of columns than the header.
# - They are quoting if they all can be, and some row shows it: a mark is doubled inside a quoted
#   field, or without quoting a line would have another number of columns than the header, or the
#   whole header is quoted.
# - Otherwise, or if some rows show the one and some the other, the file is refused.

import re
from collections.abc import Iterator
from pathlib import Path

from taskmix.errors import UserError
from taskmix.tasks.readers.lines import LONGEST_LINE, blocks, lines

MARK = '"'
ADVICE = "CSV and JSON lines can tell, so write it as one of these"
_FIELD = re.compile(r'("(?:[^"]++|"")*+"|[^"\t\n]*+)(\t|\Z)')


def is_quoted(path: Path) -> bool:
    """Return whether a file's quotation marks are quoting; raise if the file does not show it."""
    if not any(MARK.encode() in block for block in blocks(path)):
        return False
    width = first = 0
    shown = False
    for at, record in _records(path):
        fields = _fields(record)
        if not width:
            width = len(fields or record.split("\t"))
            if fields and all(field.startswith(MARK) for field in fields):
                return True
        if MARK not in record:
            continue
        if fields is None or len(fields) != width:
            _refuse_mixture(path, at, width)
            return False
        first = first or at
        shown = shown or _shows_quoting(record, fields)
    if not shown:
        raise UserError(
            f"{path}, row {first}: a column stands in quotation marks, and the file does not show "
            f"whether these are text or quoting; {ADVICE}."
        )
    return True


def _refuse_mixture(path: Path, text: int, width: int) -> None:
    """Raise if a line shows quoting, although the marks of row `text` are text."""
    for at, line in lines(path):
        fields = _fields(line) if MARK in line else None
        if fields and len(fields) == width and _shows_quoting(line, fields):
            raise UserError(
                f"{path}, row {at}: a column is quoted as in CSV, but the quotation marks of row "
                f"{text} are text; {ADVICE}."
            )


def _records(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the rows of a quoted reading: lines, joined as long as a quotation mark is open."""
    joined: list[str] = []
    size, open_mark = 0, False
    for at, line in lines(path):
        joined.append(line)
        size += len(line)
        open_mark ^= line.count(MARK) % 2 == 1
        if not open_mark or size > LONGEST_LINE:
            if size:
                yield at - len(joined) + 1, "\n".join(joined)
            joined, size, open_mark = [], 0, False
    if joined:
        yield at - len(joined) + 1, "\n".join(joined)


def _fields(record: str) -> list[str] | None:
    """Return the fields of a row, quoted ones with their marks; None if it is not well-formed."""
    fields: list[str] = []
    place = 0
    while match := _FIELD.match(record, place):
        fields.append(match[1])
        if not match[2]:
            return fields
        place = match.end()
    return None


def _shows_quoting(record: str, fields: list[str]) -> bool:
    """Return whether a row has a doubled mark, or tabs and line breaks that are no separators."""
    doubled = any(field.startswith(MARK) and MARK * 2 in field[1:-1] for field in fields)
    return doubled or any(line.count("\t") + 1 != len(fields) for line in record.split("\n"))
