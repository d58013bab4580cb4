"""Parts of a split: fewer rows, or one half of them, the same ones each time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from bursar.tasks.encoding import Encoded
from bursar.tasks.rows import Row, Source
from bursar.tasks.sizes import rows_of


@dataclass(frozen=True, eq=False)
class Split:
    """An encoded split beside the source that it was read from."""

    encoded: Encoded
    source: Source

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def rows(self) -> int:
        """How many rows there are; a long one may be several items."""
        return int(getattr(self.encoded, "rows", len(self.encoded)))

    def at_most(self, rows: int | None) -> "Split":
        """At most so many rows, spread evenly over the split."""
        there = self.encoded.rows
        return self if rows is None or rows >= there else self.part(_spread(there, rows))

    def halves(self) -> tuple["Split", "Split"]:
        """Every other row, and the rest."""
        rows = np.arange(self.encoded.rows)
        return self.part(rows[::2]), self.part(rows[1::2])

    def part(self, rows: NDArray[np.int64]) -> "Split":
        """These rows alone; `rows` ascends."""
        items = rows
        if "row" in self.encoded.dense:  # several windows a row
            items = np.flatnonzero(np.isin(self.encoded.dense["row"], rows))
        return Split(self.encoded.take(items), _Rows(self.source, frozenset(rows.tolist())))


def some_rows(source: Source, rows: int) -> Source:
    """At most so many rows of a source, spread evenly over it."""
    there = rows_of(source)
    if rows >= there:
        return source
    return _Rows(source, frozenset(_spread(there, rows).tolist()))


def hold_out(source: Source, share: float) -> tuple[Source, Source]:
    """A source without a share of its rows, and that share, spread evenly over it."""
    there = rows_of(source)
    count = min(max(1, round(share * there)), there - 1)
    held = frozenset(_spread(there, count).tolist())
    return _Rows(source, frozenset(range(there)) - held), _Rows(source, held)


def _spread(there: int, rows: int) -> NDArray[np.int64]:
    """So many different numbers below `there`, evenly spaced."""
    return np.unique(np.linspace(0, there - 1, rows).astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some rows of a source."""

    source: Source
    keep: frozenset[int]

    @property
    def where(self) -> str:
        return self.source.where

    def rows(self) -> Iterator[Row]:
        return (row for number, row in enumerate(self.source.rows()) if number in self.keep)

    def skips(self) -> Mapping[str, int]:
        return {}

    def fingerprint(self) -> str:
        digest = blake2b(self.source.fingerprint().encode(), digest_size=16)
        digest.update(np.array(sorted(self.keep), dtype=np.int64).tobytes())
        return digest.hexdigest()
