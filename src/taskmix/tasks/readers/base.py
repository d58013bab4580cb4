"""Records of files, and the interface of readers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from taskmix.errors import UserError, did_you_mean


class MissingColumnError(UserError):
    """A column that no row of a file has."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One record of a file: its values by column."""

    where: str  # the file, or another name for errors
    at: int  # from 1: the record's first line in formats made of lines, its number in others
    values: Mapping[str, Any]
    columns: Sequence[str] = ()  # of the header or schema, if there is one

    def __getitem__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            pass
        if name in self.columns:
            found, expected = len(self.values), len(self.columns)
            raise self.error(f"too few columns, {found} where the header has {expected}")
        columns = self.columns or tuple(self.values)
        row = "" if self.columns else f", row {self.at}"
        raise MissingColumnError(
            f"{self.where}{row}: no column {name!r}; columns found: {_listed(columns)}"
            f"{did_you_mean(name, columns) or '.'}"
        )

    def text(self, name: str) -> str:
        value = self[name]
        if not isinstance(value, str):
            raise self.error(f"column {name!r} holds {brief(value)}, expected a text")
        return value

    def list(self, name: str) -> Sequence[Any]:
        value = self[name]
        if not isinstance(value, (list, tuple)):
            raise self.error(f"column {name!r} holds {brief(value)}, expected a list")
        return value

    # Values that must be mappings, as records at the same place.

    def inner(self, name: str) -> "FileRecord":
        return self.nest(self[name], name)

    def inners(self, name: str) -> Iterator["FileRecord"]:
        return (self.nest(value, name) for value in self.list(name))

    def nest(self, value: Any, name: str) -> "FileRecord":
        if not isinstance(value, dict):
            raise self.error(f"column {name!r} holds {brief(value)}, expected a mapping")
        return FileRecord(self.where, self.at, value)

    def error(self, complaint: str) -> UserError:
        return UserError(f"{self.where}, row {self.at}: {complaint}.")


class Reader(Protocol):
    """Reads one format; a frozen dataclass, whose repr is part of a source's fingerprint."""

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Yield the records of a file in order."""


def _listed(names: Iterable[str], most: int = 20) -> str:
    """Return quoted names on one line; at most so many."""
    words = [repr(name) for name in names]
    more = [f"and {len(words) - most} more"] if len(words) > most else []
    return ", ".join(words[:most] + more) or "none"


def brief(value: Any) -> str:
    """Return the repr of a value for an error message, cut if it is long."""
    shown = repr(value)
    return shown if len(shown) <= 42 else f"{shown[:39]}..."
