"""One word and its tag a line, sentences set apart by blank lines (CoNLL)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from taskmix.errors import UserError
from taskmix.tasks.readers.lines import lines
from taskmix.tasks.readers.record import FileRecord, brief


@dataclass(frozen=True)
class Conll:
    """Reads sentences of `word TAB tag` lines; a record stands at its first line.

    A record has `words`, and `tags` where the lines have them.
    """

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Yield the records of a file in order, read as they are asked for."""
        for blank, group in groupby(lines(path), key=lambda numbered: not numbered[1].strip()):
            if not blank:
                yield _sentence(path, list(group))


def _sentence(path: Path, numbered: list[tuple[int, str]]) -> FileRecord:
    first, line = numbered[0]
    width = min(line.count("\t") + 1, 2)
    fields = [_fields(path, at, line, width) for at, line in numbered]
    values = dict(zip(("words", "tags"), map(list, zip(*fields, strict=True)), strict=False))
    return FileRecord(str(path), first, values, tuple(values))


def _fields(path: Path, at: int, line: str, width: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) != width or not all(fields):
        expected = ("a word", "a word, a tab and its tag")[width - 1]
        raise UserError(f"{path}, row {at}: found {brief(line)}, expected {expected}.")
    return fields
