"""Writing files so that they are whole or not there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a text file aside, then put it in place."""
    aside = path.with_name(f".{path.name}.making")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which takes its name once all of it is on the disk.

    When anything goes wrong the folder that was there before is still there, untouched.
    """
    aside = path.with_name(f".{path.name}.making")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        for file in aside.rglob("*"):
            _sync(file)
        _sync(aside)
        if path.exists():
            shutil.rmtree(path)
        aside.rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
