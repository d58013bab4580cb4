"""What every reader yields: values by column name, and where in the file they stand."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from taskmix.errors import UserError


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One record of a file.

    Args:
        where: the file, or whatever else a complaint shall name.
        at: the record's place, counted from 1: its first line in formats made of lines, its
            number in others.
        values: what stands in it, by column.
        columns: the columns that it should have, where a header or schema says so.

    >>> FileRecord("mine.csv", 3, {"text": "hello"}, ("text", "label"))["label"]
    Traceback (most recent call last):
    taskmix.errors.UserError: mine.csv, row 3: too few columns, 1 where the header has 2.
    """

    where: str
    at: int
    values: Mapping[str, Any]
    columns: Sequence[str] = ()

    def __getitem__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise self._missing(name) from None

    def text(self, name: str) -> str:
        """Return the value of a column that must be a text."""
        value = self[name]
        if not isinstance(value, str):
            raise self.error(f"column {name!r} holds {brief(value)}, expected a text")
        return value

    def list(self, name: str) -> Sequence[Any]:
        """Return the value of a column that must be a list."""
        value = self[name]
        if not isinstance(value, (list, tuple)):
            raise self.error(f"column {name!r} holds {brief(value)}, expected a list")
        return value

    def inner(self, name: str) -> "FileRecord":
        """Return the value of a column that must be a mapping, as a record of its own."""
        return self.nest(self[name], name)

    def inners(self, name: str) -> Iterator["FileRecord"]:
        """Return the values of a column that must be a list of mappings."""
        return (self.nest(value, name) for value in self.list(name))

    def nest(self, value: Any, name: str) -> "FileRecord":
        """Return a mapping that stands inside this record, as a record at the same place."""
        if not isinstance(value, dict):
            raise self.error(f"column {name!r} holds {brief(value)}, expected a mapping")
        return FileRecord(self.where, self.at, value)

    def error(self, complaint: str) -> UserError:
        """Return one sentence that names the file and the row."""
        return UserError(f"{self.where}, row {self.at}: {complaint}.")

    def _missing(self, name: str) -> UserError:
        if name in self.columns:
            found, expected = len(self.values), len(self.columns)
            return self.error(f"too few columns, {found} where the header has {expected}")
        return self.error(
            f"no column {name!r}; columns found: {_listed(self.columns or self.values)}"
        )


class Reader(Protocol):
    """Reads one format; a frozen dataclass, whose repr says how it reads."""

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Return the records of a file in order, read as they are asked for."""


def _listed(names: Iterable[str], most: int = 20) -> str:
    """Names on one line, however strange or many they are."""
    words = [name if name.isprintable() else repr(name) for name in names]
    more = [f"and {len(words) - most} more"] if len(words) > most else []
    return ", ".join(words[:most] + more) or "none"


def brief(value: Any) -> str:
    """Return a value as a complaint quotes it, cut where it is long.

    >>> brief("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    shown = repr(value)
    return shown if len(shown) <= 42 else f"{shown[:39]}..."
