"""A wrong value in a run file as one sentence."""

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from taskmix.errors import unknown


def sentence(error: ValidationError, root: type[BaseModel]) -> str:
    """Return one sentence about the first wrong value that was found in a model."""
    first, *rest = error.errors()
    more = f" (and {len(rest)} more)" if rest else ""
    if first["type"] == "extra_forbidden":
        *path, key = first["loc"]
        place = ".".join(map(str, path)) or "run"
        return str(unknown("key", str(key), _keys(root, path), place)) + more
    field = ".".join(str(part) for part in first["loc"] if part not in ("str", "dict[str,any]"))
    place = f"{field}: " if field else ""
    if first["type"] == "missing":
        return f"{place}expected a value, found none{more}"
    message = first["msg"].removeprefix("Value error, ")
    found = "" if ", found " in message else f", found {first['input']!r}"
    return f"{place}{message[0].lower()}{message[1:]}{found}{more}"


def _keys(root: type[BaseModel], path: Sequence[Any]) -> list[str]:
    section: Any = root
    for part in path:
        section = section.model_fields[part].annotation
        # A section that may be left out is `Section | None`.
        sections = [kind for kind in get_args(section) if hasattr(kind, "model_fields")]
        section = sections[0] if sections else section
    return list(section.model_fields)
