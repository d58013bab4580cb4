"""The bytes and lines of a file, gzipped or plain."""

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
"""A longer line is no row of a data set; reading it would fill the memory."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, and unpack it if its content is gzipped."""
    with raw(path) as file:
        if file.peek(2)[:2] == GZIP_MAGIC:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield file


def raw(path: Path) -> BufferedReader:
    check_regular(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None


def check_regular(path: Path) -> None:
    """Raise if a path cannot be read twice; opening a pipe would block forever."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(
            f"{path}: expected a regular file, found a pipe or a device, which cannot be read "
            "twice; save its output to a file first."
        )


def contents(path: Path) -> bytes:
    return b"".join(blocks(path))


def blocks(path: Path) -> Iterator[bytes]:
    with opened(path) as file:
        try:
            while block := file.read(BLOCK):
                yield block
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"{path}: damaged or truncated ({error}).") from None


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file, with their numbers from 1.

    Only a line feed ends a line, so that other separators may stand inside a text.
    """
    with opened(path) as file:
        at = 0
        while line := _read_line(file, path, at := at + 1):
            yield at, _decoded(line, path, at)


def _read_line(file: BinaryIO, path: Path, at: int) -> bytes:
    try:
        line = file.readline(LONGEST_LINE)
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path}, row {at}: damaged or truncated ({error}).") from None
    if len(line) == LONGEST_LINE:
        raise UserError(f"{path}, row {at}: longer than {LONGEST_LINE} bytes.")
    return line


def _decoded(line: bytes, path: Path, at: int) -> str:
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode("utf-8-sig" if at == 1 else "utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x} at position {error.start + 1}"
        raise UserError(f"{path}, row {at}: not UTF-8, found {found}.") from None
