"""Atomic writes of files and folders, safe reading of JSON, and the cache."""

import errno
import json
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from taskmix.errors import TaskmixError, UserError

T = TypeVar("T")
log = logging.getLogger(__name__)

UNFINISHED_MARK = ".making-"
"""In the names of files and folders that are not finished yet."""
CHECKSUMS = "checksums.json"
JOURNAL, SCORES = "journal.jsonl", "scores.json"
"""The files of a run folder that more rooms than the trainer read."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


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
            if file.is_file():  # safetensors gives its files to their owner alone
                file.chmod(0o666 & ~_umask())
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


def read_json(path: Path, content: str) -> dict[str, Any]:
    """Read a file with a JSON mapping; `content` names it in errors, such as "a checkpoint"."""
    try:
        value = parse_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: expected {content}, {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: expected {content}, found {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected {content}, found {value!r:.60}")
    return value


def parse_json(text: str | bytes, *, any_number: bool = False) -> Any:
    """Parse JSON; whatever is wrong with it is a `ValueError` with one line.

    Unless `any_number` is allowed, numbers must be finite, and integers have at most 64 bits.
    """
    try:
        if any_number:
            return json.loads(text)
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        return _FINITE.decode(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON ({error})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8 at byte {error.start}") from None


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"the number {number:.20}")


def _parse_int(digits: str) -> int:
    if len(digits) > 20 or (number := int(digits)).bit_length() > 64:
        _refuse(digits)
    return number


def _parse_float(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


_FINITE = json.JSONDecoder(parse_constant=_refuse, parse_int=_parse_int, parse_float=_parse_float)


def default_cache() -> Path:
    """Return the cache folder: `TASKMIX_CACHE`, or `taskmix` in the user's cache folder."""
    if folder := os.environ.get("TASKMIX_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "taskmix"


def cache_folder(cache: Path | None, part: str) -> Path:
    """Return a subfolder of the cache, which is made if need be."""
    folder = (cache or default_cache()) / part
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK) else "permission denied"
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise UserError(
            f"{folder}: the cache cannot be written ({reason}); name another folder in the "
            "environment variable TASKMIX_CACHE"
        )
    return folder


def cached(folder: Path, build: Callable[[Path], object], load: Callable[[Path], T]) -> T:
    """Load an entry of a cache, a folder; build it if it is missing or damaged."""
    if folder.exists() and not _is_intact(folder):
        log.warning("%s: found other bytes than were written; it is built again", folder)
        _remove(folder)
    if not folder.exists():
        try:
            with whole_folder(folder, same=True) as aside:
                build(aside)
                (aside / CHECKSUMS).write_text(json.dumps(_checksums(aside)))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise TaskmixError(
                f"{folder}: the cache cannot be written ({error.strerror}); make space, or name "
                "another folder in the environment variable TASKMIX_CACHE"
            ) from None
    return load(folder)


def _is_intact(folder: Path) -> bool:
    try:
        return read_json(folder / CHECKSUMS, "checksums") == _checksums(folder)
    except (OSError, UserError):
        return False


def _checksums(folder: Path) -> dict[str, str]:
    return {path.name: checksum(path) for path in folder.iterdir() if path.name != CHECKSUMS}


def _remove(folder: Path) -> None:
    """Remove an entry at once, for other processes that look for it."""
    with (
        tempfile.TemporaryDirectory(
            prefix=f".{folder.name}{UNFINISHED_MARK}", dir=folder.parent
        ) as aside,
        suppress(FileNotFoundError),
    ):  # another process was quicker
        folder.rename(Path(aside) / "old")


def checksum(path: Path) -> str:
    """Return a hash of a file."""
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()


def hash_of(content: str | bytes) -> str:
    """Return a hash, which caches, checkpoints and ranks compare."""
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


def free_name(path: Path) -> Path:
    """Return the first of NAME.old-1, NAME.old-2 and so on that does not exist."""
    number = 1
    while (free := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    return free
