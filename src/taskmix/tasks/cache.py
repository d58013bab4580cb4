"""The folder of cached results."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from taskmix.errors import UserError
from taskmix.files import cached
from taskmix.tasks.rows import Source

T = TypeVar("T")


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


def cached_fact(name: str, source: Source, find: Callable[[], T]) -> T:
    """Return a JSON-able fact about a source from the cache; compute it by `find` if need be."""
    path = cache_folder(None, "found") / f"{name}-{source.fingerprint()}.json"
    fact: T = cached(
        path,
        lambda aside: aside.write_text(json.dumps(find()), encoding="utf-8"),
        lambda there: json.loads(there.read_text()),
    )
    return fact
