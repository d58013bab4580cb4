"""The number of a split's rows, and which of them belong together."""

from array import array
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taskmix.files import cached
from taskmix.tasks.cache import cache_folder
from taskmix.tasks.encoding import numbered
from taskmix.tasks.rows import ChoiceRow, PromptRow, QuestionRow, Row, Source, TextRow


@dataclass(frozen=True, eq=False)
class Counted:
    rows: int
    groups: NDArray[np.int64] | None  # (rows,): each row's group; None if every row is its own
    passages: NDArray[np.int64] | None  # (rows,): each row's passage; None likewise


def rows_of(source: Source, cache: Path | None = None) -> int:
    return counted(source, cache).rows


def counted(source: Source, cache: Path | None = None) -> Counted:
    """Count a source's rows, groups and passages, or load the counts from the cache."""
    path = cache_folder(cache, "sizes") / f"{source.fingerprint()}.npz"
    return cached(path, lambda aside: _write(aside, _count(source)), _read)


def _write(path: Path, arrays: dict[str, NDArray[np.int64]]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _read(path: Path) -> Counted:
    with np.load(path) as stored:
        return Counted(int(stored["rows"]), stored.get("groups"), stored.get("passages"))


def _passage(row: Row) -> str:
    """Return the text that a row may share with others, or its name; empty if there is none."""
    match row:
        case QuestionRow(context=context):
            return context
        case ChoiceRow(text=text):
            return text
        case TextRow(passage=passage, group=group):
            return passage or group
        case PromptRow(prompt=prompt, answer=answer):
            return prompt or answer or ""
    return ""


def _count(source: Source) -> dict[str, NDArray[np.int64]]:
    groups, passages = array("q"), array("q")
    for number, row in enumerate(source.rows()):
        groups.append(_key(row.group if isinstance(row, TextRow) else "", number))
        passages.append(_key(_passage(row), number))
    counts = {
        "rows": np.array(len(groups)),
        "groups": _shared(groups),
        "passages": _shared(passages),
    }
    return {name: numbers for name, numbers in counts.items() if numbers is not None}


def _key(text: str, number: int) -> int:
    """Return a hash of the text; a row without one has a key of its own."""
    if not text:
        return -number - 1
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _shared(keys: "array[int]") -> NDArray[np.int64] | None:
    """Return the number of each row's key, shape `(rows,)`; None if no two rows share one."""
    numbers = numbered(np.array(keys, dtype=np.int64))
    return numbers if len(keys) and int(numbers.max()) + 1 < len(numbers) else None
