"""The looks at a study: the numbers of seeds at which its contestants were tested."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from taskmix.errors import UserError, explain
from taskmix.files import write_whole

LOOKS = "looks.json"
_FORMAT = TypeAdapter(dict[str, list[int]])


def read_looks(folder: Path) -> dict[str, list[int]]:
    """Return the numbers of seeds by contestant; none before the first look."""
    path = folder / LOOKS
    if not path.exists():
        return {}
    try:
        return _FORMAT.validate_json(path.read_bytes(), strict=True)
    except ValidationError as error:
        raise UserError(f"{path}: expected numbers of seeds, found {explain(error)}") from None


def record_look(folder: Path, seeds: Mapping[str, int]) -> dict[str, Sequence[int]]:
    """Add a look with these numbers of seeds by contestant; return the looks before it.

    The file lists the contestants of the newest look first, in its order. Looking again at the same
    seeds changes nothing.
    """
    before = read_looks(folder)
    after = {
        name: sorted({*before.get(name, ()), *([seeds[name]] if name in seeds else ())})
        for name in {**seeds, **before}
    }
    if list(after.items()) != list(before.items()):
        write_whole(folder / LOOKS, _FORMAT.dump_json(after, indent=2).decode() + "\n")
    return {name: [look for look in before.get(name, ()) if look < seeds[name]] for name in seeds}
