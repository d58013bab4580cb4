"""Where what is computed once is kept."""

import os
from pathlib import Path

from taskmix.errors import UserError


def default_cache() -> Path:
    """Return the cache folder: `TASKMIX_CACHE`, or `taskmix` in the user's cache folder."""
    named = os.environ.get("TASKMIX_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "taskmix"


def cache_folder(cache: Path | None, part: str) -> Path:
    """Return the folder of a part of the cache, or one sentence about why it cannot be written.

    Args:
        cache: the folder of the cache; `default_cache()` if None.
        part: what is kept there.
    """
    folder = (cache or default_cache()) / part
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK) else "permission denied"
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise UserError(
            f"{folder}: the cache cannot be written ({reason}); name another folder by the "
            "environment variable TASKMIX_CACHE"
        )
    return folder
