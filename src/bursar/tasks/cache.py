"""Where what is computed once is kept."""

import os
from pathlib import Path


def default_cache() -> Path:
    """Return the cache folder: `BURSAR_CACHE`, or `bursar` in the user's cache folder."""
    named = os.environ.get("BURSAR_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bursar"
