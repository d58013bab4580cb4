"""Atomic writes of files and folders, and the cache."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

UNFINISHED_MARK = ".making-"
"""In the names of files and folders that are not finished yet."""


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write to; the file gets its name once all of it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}{UNFINISHED_MARK}", dir=path.parent)
    os.close(descriptor)
    aside = Path(name)
    try:
        yield aside
        aside.chmod(0o666 & ~_umask())
        _sync(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, *, same: bool = False) -> Iterator[Path]:
    """Give a folder to write into; it gets its name once all of it is on the disk.

    An older folder of that name stays until the new one is complete. With `same`, as in a cache,
    every folder of that name has the same content, and one of another process is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}{UNFINISHED_MARK}", dir=path.parent))
    try:
        made, old = aside / "new", aside / "old"
        made.mkdir()
        yield made
        for file in made.rglob("*"):
            _sync(file)
        _sync(made)
        if path.exists() and not same:
            path.rename(old)
        try:
            made.rename(path)
        except OSError:
            if not (same and path.exists()):  # another process was quicker
                raise
        _sync(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def cached(path: Path, build: Callable[[Path], object], load: Callable[[Path], T]) -> T:
    """Load a file, or a folder (a path without suffix), of a cache; build it if it is missing."""
    if not path.exists():
        with whole_file(path) if path.suffix else whole_folder(path, same=True) as aside:
            build(aside)
    return load(path)


def hash_of(content: str | bytes) -> str:
    """Return the hash that caches, checkpoints and ranks compare."""
    data = content.encode() if isinstance(content, str) else content
    return blake2b(data, digest_size=16).hexdigest()


def number_of(text: str) -> int:
    """Return a 63-bit hash."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def sweep(*folders: Path) -> None:
    """Remove the unfinished files and folders that killed processes left in the folders."""
    for path in (path for folder in folders for path in folder.glob(f".*{UNFINISHED_MARK}*")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
