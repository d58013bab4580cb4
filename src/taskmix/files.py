"""Writing files and folders so that they are whole or not there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAKING = ".making-"
"""In the name of what is not finished yet."""


def write_whole(path: Path, text: str) -> None:
    """Write a text file aside, then put it in place."""
    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write to, which takes its name once all of it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}{MAKING}", dir=path.parent)
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
    """Give a folder to write into, which takes its name once all of it is on the disk.

    A folder that has the name already stays until the new one is whole, and gives way then.

    Args:
        path: the folder to make.
        same: whether a folder of this name always has the same content, as in a cache; then one
            that another process was quicker to make stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}{MAKING}", dir=path.parent))
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


def sweep(folder: Path) -> None:
    """Remove what processes that were killed left unfinished right below a folder."""
    for path in folder.glob(f".*{MAKING}*"):
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
