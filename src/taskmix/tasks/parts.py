"""Deterministic parts of a split, and the counts that they are cut by."""

# Rows that are scored together, such as the answers to one question of MultiRC, are a group: a part
# has all of a group or nothing of it. Rows about one passage, such as the questions about a context
# of SQuAD, are held out together: a model trained on some of them has seen the others' passage.

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.files import cache_folder, cached, number_of
from taskmix.tasks.encoding import numbered
from taskmix.tasks.rows import ChoiceRow, PromptRow, QuestionRow, Row, Source, TextRow
from taskmix.tasks.sources import check_file

COUNTS = "counts.npz"
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Split:
    """The items of a split, and their source."""

    items: Any
    source: Source

    def __len__(self) -> int:
        return len(self.items)

    @property
    def rows(self) -> int:
        """The number of rows; a long row may be several items."""
        return int(getattr(self.items, "rows", len(self.items)))

    def at_most(self, rows: int | None) -> "Split":
        """Return at most so many rows, but at least one group, spread evenly over the split."""
        if rows is None or rows >= self.rows:
            return self
        return self._part(_at_most(rows, self._groups(), self.rows))

    def halves(self) -> tuple["Split", "Split"]:
        """Return every other group of rows, and the others."""
        groups = self._groups()
        first = (np.arange(self.rows) if groups is None else groups) % 2 == 0
        if first.all():
            raise UserError(
                f"{self.source.where}: cannot be halved: expected two rows or more that are scored "
                f"apart, found one group of {self.rows}."
            )
        return self._part(first), self._part(~first)

    def part(self, rows: NDArray[np.int64]) -> "Split":
        """Return the rows of these indices, which ascend."""
        keep = np.zeros(self.rows, dtype=np.bool_)
        keep[rows] = True
        return self._part(keep)

    def _part(self, keep: Mask) -> "Split":
        if not hasattr(self.items, "take"):
            raise UserError(
                f"{self.source.where}: expected a data set, of which a part can be taken, found a "
                "loader of ready batches"
            )
        row = self._column("row")  # there if a row may have several items
        items = np.flatnonzero(keep if row is None else keep[row])
        return Split(self.items.take(items), _Rows(self.source, lambda: keep))

    def _groups(self) -> NDArray[np.int64] | None:
        """Return each row's group, shape `(rows,)`; None if every row is its own."""
        groups = self._column("group")
        return None if groups is None else numbered(np.asarray(groups))

    def _column(self, name: str) -> NDArray[np.int64] | None:
        column: NDArray[np.int64] | None = getattr(self.items, "dense", {}).get(name)
        return column


def some_rows(source: Source, rows: int) -> Source:
    """Return at most so many rows of a source, in whole groups; it is counted when it is read."""

    def mask() -> Mask:
        counts = counted(source)
        if rows >= counts.rows:
            return np.ones(counts.rows, dtype=np.bool_)
        return _at_most(rows, counts.groups, counts.rows)

    return _Rows(source, mask)


def hold_out(source: Source, share: float) -> tuple[Source, Source]:
    """Split a source into training rows and a held-out share of its passages.

    Nothing is counted before one of the two is read.
    """

    @cache
    def held() -> Mask:
        counts = counted(source)
        passages = counts.rows if counts.passages is None else int(counts.passages.max()) + 1
        if passages < 2:
            raise UserError(
                f"{source.where}: none of its rows can be held out: found {passages} passage with "
                f"{counts.rows} rows, expected two passages or more."
            )
        mask = _spread(passages, min(max(1, round(share * passages)), passages - 1))
        return mask if counts.passages is None else mask[counts.passages]

    return _Rows(source, lambda: ~held()), _Rows(source, held)


def _at_most(rows: int, groups: NDArray[np.int64] | None, total: int) -> Mask:
    """Return a mask of whole groups with at most `rows` of `total` rows, but one group at least."""
    if groups is None:
        return _spread(total, rows)
    sizes = np.bincount(groups)
    count = max(1, rows * len(sizes) // total)
    while count > 1 and (kept := int(sizes[_spread(len(sizes), count)].sum())) > rows:
        count = max(1, min(count - 1, count * rows // kept))
    return _spread(len(sizes), count)[groups]


def _spread(size: int, count: int) -> Mask:
    """Return a mask of shape `(size,)` that is true at `count` evenly spaced indices."""
    mask = np.zeros(size, dtype=np.bool_)
    mask[np.linspace(0, size - 1, count).astype(np.int64)] = True
    return mask


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some rows of a source."""

    source: Source
    mask: Callable[[], Mask]  # (rows,)

    @cached_property
    def keep(self) -> Mask:
        return self.mask()

    @cached_property
    def root(self) -> tuple[Source, Mask]:
        """The source that is no part of another, and a mask of its kept rows."""
        if not isinstance(self.source, _Rows):
            return self.source, self.keep
        source, outer = self.source.root
        keep = np.zeros_like(outer)
        keep[outer] = self.keep
        return source, keep

    @property
    def where(self) -> str:
        return self.source.where

    @property
    def shape(self) -> Any:
        return getattr(self.source, "shape", None)

    @property
    def reader(self) -> Any:
        return getattr(self.source, "reader", None)

    def check(self) -> None:
        check_file(self.source)

    def rows(self) -> Iterator[Row]:
        return compress(self.source.rows(), self.keep)

    def skips(self) -> Mapping[str, int]:
        return self.source.skips() if self.keep.all() else {}

    def fingerprint(self) -> str:
        source, keep = self.root
        if keep.all():
            return source.fingerprint()
        digest = blake2b(source.fingerprint().encode(), digest_size=16)
        digest.update(np.packbits(keep).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Counted:
    rows: int
    groups: NDArray[np.int64] | None  # (rows,): each row's group; None if every row is its own
    passages: NDArray[np.int64] | None  # (rows,): each row's passage; None likewise


def rows_of(source: Source, cache: Path | None = None) -> int:
    return counted(source, cache).rows


def counted(source: Source, cache: Path | None = None) -> Counted:
    """Count a source's rows, groups and passages, or load the counts from the cache."""
    return cached(
        cache_folder(cache, "sizes") / source.fingerprint(),
        lambda aside: np.savez(aside / COUNTS, allow_pickle=False, **_count(source)),
        _read,
    )


def _read(folder: Path) -> Counted:
    with np.load(folder / COUNTS) as stored:
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
    return number_of(text) if text else -number - 1


def _shared(keys: "array[int]") -> NDArray[np.int64] | None:
    """Return the number of each row's key, shape `(rows,)`; None if no two rows share one."""
    numbers = numbered(np.array(keys, dtype=np.int64))
    return numbers if len(keys) and int(numbers.max()) + 1 < len(numbers) else None
