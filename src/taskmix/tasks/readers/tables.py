"""Readers of CSV, tab-separated values, CoNLL and Parquet."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from taskmix.errors import UserError
from taskmix.tasks.readers.base import FileRecord, Reader, brief
from taskmix.tasks.readers.lines import LONGEST_LINE, check_regular, lines
from taskmix.tasks.readers.quoting import is_quoted


@dataclass(frozen=True)
class Csv:
    """Reads quoted values under a header, and skips blank lines."""

    delimiter: str = ","

    def records(self, path: Path) -> Iterator[FileRecord]:
        numbered = _rows(path, self.delimiter)
        names = _header(path, next(numbered, (1, [""]))[1])
        for at, fields in numbered:
            record = FileRecord(str(path), at, dict(zip(names, fields, strict=False)), names)
            if len(fields) > len(names):
                raise _too_wide(record, len(fields))
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
    # The limit is one of the process, so it is raised for this call only.
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        return next(parser)
    finally:
        csv.field_size_limit(limit)


@dataclass(frozen=True)
class Tsv:
    """Reads a user's tab-separated values, quoted as in CSV or not."""

    def records(self, path: Path) -> Iterator[FileRecord]:
        reader: Reader = Csv("\t") if is_quoted(path) else PlainTsv()
        return reader.records(path)


@dataclass(frozen=True)
class PlainTsv:
    """Reads tab-separated values in which quotation marks are text, and skips blank lines."""

    header: tuple[str, ...] | None = None  # None if the file has one
    # A row with more columns than the header is an error or, as in the readers of the official
    # benchmarks, loses them.
    wide: Literal["error", "cut"] = "error"

    def records(self, path: Path) -> Iterator[FileRecord]:
        numbered = ((at, line) for at, line in lines(path) if line.strip("\r "))
        names = self.header
        if names is None:
            names = _header(path, next(numbered, (1, ""))[1].split("\t"))
        for at, line in numbered:
            fields = line.split("\t")
            record = FileRecord(str(path), at, dict(zip(names, fields, strict=False)), names)
            if len(fields) > len(names) and self.wide == "error":
                raise _too_wide(record, len(fields))
            yield record


def _header(path: Path, names: list[str]) -> tuple[str, ...]:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{path}, row 1: the header has column {twice[0]!r} twice.")
    return tuple(names)


def _too_wide(record: FileRecord, found: int) -> UserError:
    return record.error(f"too many columns, {found} where the header has {len(record.columns)}")


@dataclass(frozen=True)
class Conll:
    """Reads sentences of `word TAB tag` lines into `words` and, if there are any, `tags`."""

    def records(self, path: Path) -> Iterator[FileRecord]:
        for blank, group in groupby(lines(path), key=lambda numbered: not numbered[1].strip()):
            if not blank:
                yield _sentence(path, list(group))


def _sentence(path: Path, numbered: list[tuple[int, str]]) -> FileRecord:
    first, line = numbered[0]
    width = min(line.count("\t") + 1, 2)
    fields = [_word_and_tag(path, at, line, width) for at, line in numbered]
    values = dict(zip(("words", "tags"), map(list, zip(*fields, strict=True)), strict=False))
    return FileRecord(str(path), first, values, tuple(values))


def _word_and_tag(path: Path, at: int, line: str, width: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) != width or not all(fields):
        expected = ("a word", "a word, a tab and its tag")[width - 1]
        raise UserError(f"{path}, row {at}: found {brief(line)}, expected {expected}.")
    return fields


@dataclass(frozen=True)
class Parquet:
    """Reads Parquet tables; needs the extra `parquet`."""

    def records(self, path: Path) -> Iterator[FileRecord]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise UserError(f"{path}: needs pyarrow; pip install 'taskmix[parquet]'.") from None
        check_regular(path)
        at = 0
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=1024):
                    for values in batch.to_pylist():
                        at += 1
                        yield FileRecord(str(path), at, values)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise UserError(f"{path}, row {at + 1}: not readable as Parquet ({reason}).") from None
