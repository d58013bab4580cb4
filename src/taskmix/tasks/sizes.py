"""How many rows a split has, and which of them belong together, counted once."""

from array import array
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taskmix.files import whole_file
from taskmix.tasks.cache import cache_folder
from taskmix.tasks.encoding import numbered
from taskmix.tasks.rows import ChoiceRow, PromptRow, QuestionRow, Row, Source, TextRow


@dataclass(frozen=True, eq=False)
class Counted:
    """The rows of a source, and which of them belong together.

    Args:
        rows: how many there are.
        groups: the number of each row's group, those rows that are scored together; shape
            `(rows,)`, or None where each row is a group of its own.
        passages: the number of each row's passage, the text that several rows are about; shape
            `(rows,)`, or None where each row has one of its own.
    """

    rows: int
    groups: NDArray[np.int64] | None
    passages: NDArray[np.int64] | None


def rows_of(source: Source, cache: Path | None = None) -> int:
    """Return how many rows a source has."""
    return counted(source, cache).rows


def counted(source: Source, cache: Path | None = None) -> Counted:
    """Count a source's rows, groups and passages; they are kept under the name of its content."""
    path = cache_folder(cache, "sizes") / f"{source.fingerprint()}.npz"
    if not path.exists():
        arrays = _count(source)
        with whole_file(path) as aside, aside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    with np.load(path) as stored:
        return Counted(int(stored["rows"]), stored.get("groups"), stored.get("passages"))


def group_of(row: Row) -> str:
    """Return what the rows that are scored together share; empty for a row scored alone."""
    return row.group if isinstance(row, TextRow) else ""


def passage_of(row: Row) -> str:
    """Return the text that a row shares with others, or its name; empty if it shares none.

    A model that was trained on one question about a passage has seen the passage of the others, so
    that rows of one passage are held out together.
    """
    match row:
        case QuestionRow(context=context):
            return context
        case ChoiceRow(text=text):
            return text
        case TextRow(passage=passage, group=group):
            return passage or group
        case PromptRow(prompt=prompt, answer=answer):  # the same text twice is one text
            return prompt or answer or ""
    return ""


def _count(source: Source) -> dict[str, NDArray[np.int64]]:
    groups, passages, rows = _Keys(), _Keys(), 0
    for row in source.rows():
        groups.append(rows, group_of(row))
        passages.append(rows, passage_of(row))
        rows += 1
    found = {"groups": groups.numbers(), "passages": passages.numbers()}
    shared = {name: numbers for name, numbers in found.items() if numbers is not None}
    return {"rows": np.array(rows), **shared}


class _Keys:
    """The keys of rows in eight bytes each; where no row has a key, none is stored."""

    def __init__(self) -> None:
        self._keys = array("q")

    def append(self, number: int, key: str) -> None:
        """Add the key of the row of this number; an empty one is the row's own."""
        if key:
            if not self._keys:
                self._keys.extend(range(-1, -number - 1, -1))
            digest = blake2b(key.encode(), digest_size=8).digest()
            self._keys.append(int.from_bytes(digest, "little") >> 1)
        elif self._keys:
            self._keys.append(-number - 1)

    def numbers(self) -> NDArray[np.int64] | None:
        """Return the number of each row's key; None if no two rows share one."""
        numbers = numbered(np.frombuffer(self._keys, dtype=np.int64))
        shared = bool(self._keys) and int(numbers.max()) + 1 < len(numbers)
        return numbers if shared else None
