"""One JSON mapping a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.tasks.readers.lines import lines
from taskmix.tasks.readers.record import FileRecord, brief


@dataclass(frozen=True)
class Jsonl:
    """Reads one JSON mapping a line; blank lines hold no record."""

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Yield the records of a file in order, read as they are asked for."""
        for at, line in lines(path):
            if line.strip():
                yield FileRecord(str(path), at, mapping(line, f"{path}, row {at}"))


def mapping(text: str, place: str) -> dict[str, Any]:
    """Return the JSON mapping that a text holds; a complaint names the place."""
    value = parsed(text, place)
    if not isinstance(value, dict):
        raise UserError(f"{place}: expected a JSON mapping, found {brief(value)}.")
    return value


def parsed(text: str, place: str) -> Any:
    """Return the JSON value that a text holds; a complaint names the place."""
    try:
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError(f"{place}: half a surrogate pair, which no UTF-8 text has.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not valid JSON ({error}).") from None
    return value
