"""Write docs/reference.md from the docstrings of the public names.

python scripts/reference.py          # write it
python scripts/reference.py --check  # exit 1 if it is not up to date
"""

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import taskmix

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
ROOMS = (
    "policies",
    "selection",
    "weighting",
    "uncertainty",
    "models",
    "models.conditional",
    "offpolicy",
    "search",
    "bandit",
    "testing",
)
"""The rooms whose names are public; the first words of each stand in its docstring."""


def names() -> Iterator[tuple[str, Any]]:
    """Every public name with what it is, the top of the house first."""
    for name in sorted(taskmix.__all__):
        if name != "__version__":
            yield f"taskmix.{name}", getattr(taskmix, name)
    for room in ROOMS:
        module = import_module(f"taskmix.{room}")
        for name in sorted(module.__all__):
            yield f"taskmix.{room}.{name}", getattr(module, name)


def page() -> str:
    lines = [
        "# Reference",
        "",
        "Made from the docstrings by `python scripts/reference.py`. The names at the top are what",
        "`import taskmix` gives; below them stand the rooms that are also public. The rest is",
        "internal and may change.",
        "",
    ]
    room, seen = "", {}
    for path, thing in names():
        place = path.rpartition(".")[0]
        if place != room:
            room = place
            about = inspect.getdoc(import_module(place)) or ""
            lines += [f"## {place}", "", about.split("\n\n")[0], ""]
        if inspect.ismodule(thing):
            continue
        if id(thing) in seen and callable(thing):
            lines += [f"### {path}", "", f"The same as `{seen[id(thing)]}`.", ""]
            continue
        seen[id(thing)] = path
        lines += [f"### {path}", "", *_entry(path, thing)]
    return "\n".join(lines)


def _entry(path: str, thing: Any) -> list[str]:
    name = path.rpartition(".")[2]
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return ["A value; its source says what it is for.", ""]
    text = inspect.getdoc(thing) or ""
    return ["```python", f"{name}{_signature(thing)}", "```", "", "```text", text, "```", ""]


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    plain = [
        p.replace(
            annotation=p.empty, default=_Default(p.default) if p.default is not p.empty else p.empty
        )
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


class _Default:
    """A default value as the page shows it: functions by their names."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        if inspect.isroutine(self._value):
            return str(self._value.__name__)
        if isinstance(self._value, dict) and self._value:
            return "{...}"
        return repr(self._value)


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != text)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
