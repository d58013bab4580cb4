"""What tables made of lines have in common: a header, and rows as wide as it."""

from pathlib import Path

from taskmix.errors import UserError
from taskmix.tasks.readers.record import FileRecord


def header(path: Path, names: list[str]) -> tuple[str, ...]:
    """Return the names of the columns, each of which must be there once."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{path}, row 1: the header has column {twice[0]!r} twice.")
    return tuple(names)


def too_wide(record: FileRecord, found: int) -> UserError:
    """Return the sentence for a row that has more columns than the header."""
    return record.error(f"too many columns, {found} where the header has {len(record.columns)}")
