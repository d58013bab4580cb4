"""How many rows a split has, counted once."""

from pathlib import Path

from bursar.files import write_whole
from bursar.tasks.encoding import default_cache
from bursar.tasks.rows import Source


def rows_of(source: Source, cache: Path | None = None) -> int:
    """The rows of a source; the count is kept under the name of its content."""
    path = (cache or default_cache()) / "sizes" / source.fingerprint()
    if not path.exists():
        count = sum(1 for _ in source.rows())
        write_whole(path, str(count))
    return int(path.read_text())
