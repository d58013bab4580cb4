"""Parts of a split: fewer rows, or one half of them, the same ones each time.

Rows that are scored together, such as the answers to one question of MultiRC, are a group: a part
has all of a group or nothing of it. Rows about one passage, such as the questions about a context
of SQuAD or a text of MultiRC, are held out together: a model that was trained on some of them has
seen the passage of the others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks.encoding import numbered
from taskmix.tasks.rows import Row, Source
from taskmix.tasks.sizes import counted

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Split:
    """The items of a split beside the source that they were read from."""

    items: Any
    source: Source

    def __len__(self) -> int:
        return len(self.items)

    @property
    def rows(self) -> int:
        """How many rows there are; a long one may be several items."""
        return int(getattr(self.items, "rows", len(self.items)))

    def at_most(self, rows: int | None) -> "Split":
        """Return at most so many rows, in whole groups spread evenly over the split.

        One group is there even if it has more.
        """
        there = self.rows
        if rows is None or rows >= there:
            return self
        return self._part(_some(self._groups(), there, rows))

    def halves(self) -> tuple["Split", "Split"]:
        """Return every other group of rows, and the rest."""
        groups = self._groups()
        first = (np.arange(self.rows) if groups is None else groups) % 2 == 0
        if first.all():
            raise UserError(
                f"{self.source.where}: cannot be halved: expected two rows or more that are scored "
                f"apart, found one group of {self.rows}."
            )
        return self._part(first), self._part(~first)

    def part(self, rows: NDArray[np.int64]) -> "Split":
        """Return these rows alone; `rows` ascends."""
        keep = np.zeros(self.rows, dtype=np.bool_)
        keep[rows] = True
        return self._part(keep)

    def _part(self, keep: Mask) -> "Split":
        """Return the rows that are kept; `keep` has shape `(rows,)`."""
        if not hasattr(self.items, "take"):
            raise UserError(
                f"{self.source.where}: expected a data set, of which a part can be taken, found a "
                "loader of ready batches"
            )
        row = self._column("row")  # several windows a row
        items = np.flatnonzero(keep if row is None else keep[row])
        return Split(self.items.take(items), _rows(self.source, keep))

    def _groups(self) -> NDArray[np.int64] | None:
        """Return the number of each row's group, shape `(rows,)`; None if rows are scored alone."""
        groups = self._column("group")
        return None if groups is None else numbered(np.asarray(groups))

    def _column(self, name: str) -> NDArray[np.int64] | None:
        """Return a column of encoded rows; None where there is none."""
        column: NDArray[np.int64] | None = getattr(self.items, "dense", {}).get(name)
        return column


def some_rows(source: Source, rows: int) -> Source:
    """Return at most so many rows of a source, in whole groups spread evenly over it."""
    sizes = counted(source)
    if rows >= sizes.rows:
        return source
    return _rows(source, _some(sizes.groups, sizes.rows, rows))


def hold_out(source: Source, share: float) -> tuple[Source, Source]:
    """Return a source without a share of its rows, and that share.

    Whole passages are held out, spread evenly over the source: no passage is on both sides. The
    share is one of passages; where they differ in size, that of rows is near it.
    """
    sizes = counted(source)
    there = sizes.rows if sizes.passages is None else int(sizes.passages.max()) + 1
    if there < 2:
        raise UserError(
            f"{source.where}: none of its rows can be held out: found {there} passage with "
            f"{sizes.rows} rows, expected two passages or more."
        )
    held = _spread(there, min(max(1, round(share * there)), there - 1))
    if sizes.passages is not None:
        held = held[sizes.passages]
    return _rows(source, ~held), _rows(source, held)


def _some(groups: NDArray[np.int64] | None, there: int, rows: int) -> Mask:
    """Return which of the rows that are there to keep so that whole groups make at most `rows`."""
    if groups is None:
        return _spread(there, rows)
    sizes = np.bincount(groups)
    count = max(1, rows * len(sizes) // there)
    while count > 1 and (found := int(sizes[_spread(len(sizes), count)].sum())) > rows:
        count = max(1, min(count - 1, count * rows // found))
    return _spread(len(sizes), count)[groups]


def _spread(there: int, count: int) -> Mask:
    """Return a mask of shape `(there,)` with so many evenly spaced places in it."""
    mask = np.zeros(there, dtype=np.bool_)
    mask[np.linspace(0, there - 1, count).astype(np.int64)] = True
    return mask


def _rows(source: Source, keep: Mask) -> "_Rows":
    """Return some rows of a source; those of a part are rows of the whole."""
    if isinstance(source, _Rows):
        whole = np.zeros_like(source.keep)
        whole[source.keep] = keep
        return _Rows(source.source, whole)
    return _Rows(source, keep)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some rows of a source: those where `keep`, of shape `(rows,)`, is true."""

    source: Source
    keep: Mask

    @property
    def where(self) -> str:
        return self.source.where

    def rows(self) -> Iterator[Row]:
        return compress(self.source.rows(), self.keep)

    def skips(self) -> Mapping[str, int]:
        return {}

    def fingerprint(self) -> str:
        digest = blake2b(self.source.fingerprint().encode(), digest_size=16)
        digest.update(np.packbits(self.keep).tobytes())
        return digest.hexdigest()
