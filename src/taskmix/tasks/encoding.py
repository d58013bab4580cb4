"""Encoded splits: columns on disk, memory-mapped, cached by content and tokenizer."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.files import cache_folder, cached, hash_of
from taskmix.tasks.kinds.base import Array, Columns, Kind
from taskmix.tasks.rows import Row, Source
from taskmix.tasks.tokenizer import Tokenizer

FORMAT = 4
CHUNK = 2048
IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
SECOND_TEXT = "second_text"
"""The input that is 1 at the tokens of a sequence's second text."""
ITEM = "item"
"""The column that holds the item index of each sequence."""
FLAGS = ("cut", "lost")
"""Dense columns: whether an item's row was cut, or its answer lost."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Encoded:
    """The items of one split as columns; reading a batch touches only its own rows."""

    items: int
    rows: int  # fewer than items where long rows have several windows
    skipped: dict[str, int]  # records that the source left out, by documented rule
    dense: dict[str, Array]  # first axis: items
    per_sequence: dict[str, Array]  # first axis: sequences
    ragged: dict[str, Array]  # the values of all sequences, concatenated
    offsets: NDArray[np.int64]  # (sequences + 1,): the bounds of each sequence in `ragged`
    sequences: NDArray[np.int64] | None  # (items + 1,): bounds of each item's; None for one each
    pads: dict[str, int]  # padding value of each ragged column
    held: frozenset[str]  # columns that stay out of batches
    targets: frozenset[str] = frozenset({"labels", ITEM})  # not for the encoder
    cut: int = 0  # rows that the tokenizer cut at its maximum length
    lost: int = 0  # rows with an answer that no window holds (span)
    segments: bool = False  # whether the second text of a pair has a token type of its own

    def __len__(self) -> int:
        return self.items

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of tokens of each item, shape `(items,)`; ones without texts."""
        if IDS not in self.ragged:
            return np.ones(self.items, dtype=np.int64)
        bounds = self.offsets if self.sequences is None else self.offsets[self.sequences]
        return np.diff(bounds)

    def batch(self, items: NDArray[np.int64]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the encoder's inputs for these items, and their targets, padded to the longest."""
        columns = {
            name: column[items] for name, column in self.dense.items() if name not in self.held
        }
        if self.ragged:
            columns |= self._sequences(items)
        inputs = {name: column for name, column in columns.items() if name not in self.targets}
        return inputs, {name: columns[name] for name in columns if name in self.targets}

    def _sequences(self, items: NDArray[np.int64]) -> dict[str, Array]:
        columns = {}
        which, counts = self.sequences_of(items)
        if self.sequences is not None:
            columns[ITEM] = np.repeat(np.arange(len(items)), counts)
        starts, ends = self.offsets[which], self.offsets[which + 1]
        longest = int((ends - starts).max())
        for name, values in self.ragged.items():
            if name not in self.held:
                columns[name] = _padded(values, starts, ends, longest, self.pads.get(name, 0))
        positions = np.arange(longest)
        columns[MASK] = (positions < (ends - starts)[:, None]).astype(np.int64)
        for name, column in self.per_sequence.items():
            columns[name] = column[which]
        if "second" in columns:
            second = columns.pop("second").astype(np.int64)[:, None]
            columns[SECOND_TEXT] = ((positions >= second) & (second > 0)) * columns[MASK]
            if self.segments:
                columns[SEGMENTS] = columns[SECOND_TEXT]
        return columns

    def take(self, items: NDArray[np.int64]) -> "Encoded":
        """Return a split of these items alone, in this order."""
        dense = {name: column[items] for name, column in self.dense.items()}
        if "row" in dense:
            dense["row"] = numbered(dense["row"])
        part = replace(
            self,
            items=len(items),
            rows=len(np.unique(dense["row"])) if "row" in dense else len(items),
            dense=dense,
            cut=_flagged(dense, "cut"),
            lost=_flagged(dense, "lost"),
        )
        if not self.ragged:
            return part
        which, counts = self.sequences_of(items)
        starts, ends = self.offsets[which], self.offsets[which + 1]
        tokens = _spread(starts, ends)
        return replace(
            part,
            per_sequence={name: column[which] for name, column in self.per_sequence.items()},
            ragged={name: values[tokens] for name, values in self.ragged.items()},
            offsets=_bounds(np.cumsum(ends - starts)),
            sequences=None if self.sequences is None else _bounds(np.cumsum(counts)),
        )

    def sequences_of(self, items: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of these items' sequences, and how many each item has."""
        if self.sequences is None:
            return items, np.ones_like(items)
        first, last = self.sequences[items], self.sequences[items + 1]
        return _spread(first, last), last - first


def numbered(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the keys from 0 in the order of their first appearance."""
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), dtype=np.int64)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[which]


def _flagged(dense: Mapping[str, Array], name: str) -> int:
    """Count the rows with an item whose flag is set."""
    if name not in dense:
        return 0
    flags = np.asarray(dense[name], dtype=np.bool_)
    return len(np.unique(dense["row"][flags])) if "row" in dense else int(flags.sum())


def _spread(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate the ranges `[start, end)`."""
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    shifts: NDArray[np.int64] = np.repeat(starts - before, lengths)
    return np.arange(len(shifts), dtype=np.int64) + shifts


def _padded(
    values: Array, starts: NDArray[np.int64], ends: NDArray[np.int64], longest: int, pad: int
) -> Array:
    """Pad rows to one length; integers become 64-bit indices."""
    dtype = np.int64 if np.issubdtype(values.dtype, np.integer) else values.dtype
    rows = np.full((len(starts), longest, *values.shape[1:]), pad, dtype=dtype)
    for row, start, end in zip(rows, starts.tolist(), ends.tolist(), strict=True):
        row[: end - start] = values[start:end]
    return rows


def encode(
    kind: Kind,
    source: Source,
    tokenizer: Tokenizer | None,
    cache: Path | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> Encoded:
    """Load an encoded split from the cache; encode it and put it there if need be."""
    folder = cache_folder(cache, "encoded") / _key(kind, source, tokenizer)
    encoded = cached(
        folder,
        lambda aside: _build(aside, kind, source, tokenizer, on_rows),
        lambda entry: _load(entry, kind),
    )
    for rule, count in encoded.skipped.items():
        log.warning("%s: skipped %d records: %s", source.where, count, rule)
    return encoded


def _key(kind: Kind, source: Source, tokenizer: Tokenizer | None) -> str:
    parts = [
        str(FORMAT),
        source.fingerprint(),
        json.dumps(kind.columns_spec(), sort_keys=True) + kind.version(),
        tokenizer.fingerprint() if tokenizer else "",
    ]
    return hash_of("\x1f".join(parts))


def _build(
    folder: Path,
    kind: Kind,
    source: Source,
    tokenizer: Tokenizer | None,
    on_rows: Callable[[int], None] | None,
) -> None:
    with ExitStack() as files:
        writer = _Writer(folder, tokenizer, files)
        for rows in _chunks(source.rows()):
            writer.append(kind.encode(rows, tokenizer, source.where), len(rows))
            if on_rows:
                on_rows(writer.rows)
        if not writer.rows:
            raise UserError(f"{source.where}: expected at least one row, found none")
        writer.finish(source.skips())


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while chunk := list(islice(rows, CHUNK)):
        yield chunk


class _Writer:
    """Appends chunks of columns, one file a column."""

    def __init__(self, folder: Path, tokenizer: Tokenizer | None, files: ExitStack) -> None:
        self._folder = folder
        self._open = files
        self._small = tokenizer is not None and tokenizer.vocabulary <= 1 << 16
        self._pad = tokenizer.pad_id if tokenizer else 0
        self._segments = tokenizer is not None and tokenizer.segments
        self._files: dict[str, BinaryIO] = {}
        self._meta: dict[str, dict[str, Any]] = {}
        self._names: set[str] = set()
        self._flags = dict.fromkeys(FLAGS, 0)
        self.rows = 0
        self._items = 0
        self._tokens = 0
        self._sequence_count = 0

    def append(self, columns: Columns, rows: int) -> None:
        names = {*columns.dense, *columns.ragged, *columns.per_sequence}
        if self.rows and names != self._names:
            raise ValueError(f"expected the columns {self._names} in every chunk, found {names}")
        self._names = names
        dense = dict(columns.dense)
        if columns.items is not None:
            dense["row"] = np.repeat(np.arange(self.rows, self.rows + rows), columns.items)
        for name, array in dense.items():
            self._put("dense", name, array)
        for name in FLAGS:
            self._flags[name] += _flagged(dense, name)
        self._items += rows if columns.items is None else sum(columns.items)
        self.rows += rows
        if not columns.ragged:
            return
        if columns.sequences is not None:
            ends = self._sequence_count + np.cumsum(columns.sequences)
            self._put("sequences", "sequences", ends.astype(np.int64))
        for name, arrays in columns.ragged.items():
            self._put("ragged", name, np.concatenate(arrays).astype(self._type(name, arrays[0])))
        for name, array in columns.per_sequence.items():
            self._put("per_sequence", name, array)
        lengths = np.array([len(array) for array in columns.ragged[IDS]], dtype=np.int64)
        self._put("offsets", "offsets", self._tokens + np.cumsum(lengths))
        self._tokens += int(lengths.sum())
        self._sequence_count += len(lengths)

    def _type(self, name: str, array: Array) -> np.dtype[Any]:
        if name == IDS:
            return np.dtype(np.uint16 if self._small else np.int32)
        return array.dtype

    def _put(self, role: str, name: str, array: Array) -> None:
        if name not in self._files:
            file = (self._folder / f"{name}.bin").open("wb")
            self._files[name] = self._open.enter_context(file)
            self._meta[name] = {
                "role": role,
                "dtype": array.dtype.str,
                "shape": list(array.shape[1:]),
            }
        self._files[name].write(np.ascontiguousarray(array).tobytes())

    def finish(self, skipped: Mapping[str, int]) -> None:
        meta = {
            "items": self._items,
            "rows": self.rows,
            "skipped": dict(skipped),
            "pad": self._pad,
            "segments": self._segments,
            **self._flags,
            "columns": self._meta,
        }
        (self._folder / "meta.json").write_text(json.dumps(meta))


def _load(folder: Path, kind: Kind) -> Encoded:
    """Open an encoded split, memory-mapped."""
    meta = json.loads((folder / "meta.json").read_text())
    roles: dict[str, dict[str, Array]] = {
        role: {} for role in ("dense", "per_sequence", "ragged", "offsets", "sequences")
    }
    for name, about in meta["columns"].items():
        flat = np.memmap(folder / f"{name}.bin", dtype=about["dtype"], mode="r")
        roles[about["role"]][name] = flat.reshape(-1, *about["shape"])
    return Encoded(
        items=meta["items"],
        rows=meta["rows"],
        skipped=meta["skipped"],
        dense=roles["dense"],
        per_sequence=roles["per_sequence"],
        ragged=roles["ragged"],
        offsets=_bounds(roles["offsets"].get("offsets")),
        sequences=_bounds(roles["sequences"]["sequences"]) if roles["sequences"] else None,
        pads={IDS: meta["pad"], **kind.pads},
        held=kind.held | frozenset(FLAGS),
        targets=kind.targets | {ITEM},
        cut=meta["cut"],
        lost=meta["lost"],
        segments=meta["segments"],
    )


def _bounds(ends: Array | None) -> NDArray[np.int64]:
    return np.concatenate([[0], ends if ends is not None else []]).astype(np.int64)
