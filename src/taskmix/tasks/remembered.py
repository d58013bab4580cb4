"""What was found out by reading a whole split, so that the next start need not read it again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from taskmix.files import write_whole
from taskmix.tasks.cache import default_cache
from taskmix.tasks.rows import Source

T = TypeVar("T")


def remembered(what: str, source: Source, find: Callable[[], T], cache: Path | None = None) -> T:
    """Return what `find` finds in a source: from the cache, or found and put there.

    Args:
        what: names what is looked for.
        source: where; its fingerprint names the content.
        find: finds it; a JSON-able value.
        cache: the folder of the cache; `default_cache()` if None.
    """
    path = (cache or default_cache()) / "found" / f"{what}-{source.fingerprint()}.json"
    if not path.exists():
        write_whole(path, json.dumps(find()))
    found: T = json.loads(path.read_text())
    return found
