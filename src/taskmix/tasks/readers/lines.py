"""The lines of a text file, gzipped or plain: what all formats made of lines stand on."""

import gzip
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from taskmix.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"
BLOCK = 2**20
LONGEST_LINE = 2**26
"""A longer line is no row of a data set, and reading it would fill the memory."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Give a file's bytes, unpacked if it is gzipped, whatever its name says."""
    with raw(path) as file:
        if file.peek(2)[:2] == GZIP_MAGIC:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield file


def raw(path: Path) -> BufferedReader:
    """Return a file's bytes as they lie on disk."""
    check_regular(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None


def check_regular(path: Path) -> None:
    """Raise unless this is a file that can be read twice: opening a pipe would wait for ever."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(
            f"{path}: expected a regular file, found a pipe or a device, which cannot be read "
            "twice; save what it gives to a file first."
        )


def contents(path: Path) -> bytes:
    """Return all bytes of a file, for formats that cannot be read piece by piece."""
    return b"".join(blocks(path))


def blocks(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes, unpacked if it is gzipped, in blocks."""
    with opened(path) as file:
        try:
            while block := file.read(BLOCK):
                yield block
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"{path}: damaged or truncated ({error}).") from None


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, counted from 1, without their ends and without a byte-order mark.

    Only a line feed ends a line, so that other separators inside a text do no harm.
    """
    with opened(path) as file:
        for at, line in enumerate(_raw_lines(file, path), start=1):
            yield at, _decoded(line, path, at)


def _raw_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    at = 0
    try:
        while line := file.readline(LONGEST_LINE):
            at += 1
            if len(line) == LONGEST_LINE:
                raise UserError(f"{path}, row {at}: longer than {LONGEST_LINE} bytes.")
            yield line
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path}, row {at + 1}: damaged or truncated ({error}).") from None


def _decoded(line: bytes, path: Path, at: int) -> str:
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode("utf-8-sig" if at == 1 else "utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x} at position {error.start + 1}"
        raise UserError(f"{path}, row {at}: not UTF-8, found {found}.") from None
