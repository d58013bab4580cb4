"""What is packed into a page."""

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any


def unpacked(page: Path, block: str) -> str:
    """Return a gzipped block of a page: `figures` or `plotly`."""
    [packed] = re.findall(f'id="{block}">([^<]*)<', page.read_text(encoding="utf-8"))
    return gzip.decompress(b64decode(packed)).decode()


def figures_in(page: Path) -> list[dict[str, Any]]:
    """Return the figures of a page; none if it has no block of them."""
    if 'id="figures"' not in page.read_text(encoding="utf-8"):
        return []
    figures: list[dict[str, Any]] = json.loads(unpacked(page, "figures"))
    return figures
