"""How many rows a split has, counted once."""

from pathlib import Path

from bursar.tasks.encoding import default_cache
from bursar.tasks.rows import Source


def rows_of(source: Source, cache: Path | None = None) -> int:
    """The rows of a source; the count is kept under the name of its content."""
    path = (cache or default_cache()) / "sizes" / source.fingerprint()
    if not path.exists():
        count = sum(1 for _ in source.rows())
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".making")
        aside.write_text(str(count))
        aside.replace(path)
    return int(path.read_text())
