"""The public face: what is there, that it is light, and that it is explained."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import taskmix

ROOMS = [*sorted(taskmix._ROOMS), "models.conditional"]


def names() -> Iterator[tuple[str, Any]]:
    for place in ("taskmix", *(f"taskmix.{room}" for room in ROOMS)):
        module = import_module(place)
        for name in module.__all__:
            yield f"{place}.{name}", getattr(module, name)


NAMES = {
    path: thing for path, thing in names() if inspect.isclass(thing) or inspect.isroutine(thing)
}


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(taskmix) == sorted(taskmix.__all__)
    assert all(getattr(taskmix, name) is not None for name in taskmix.__all__)


def test_public_packages_are_attributes() -> None:
    code = "import taskmix; [getattr(taskmix, room).__all__ for room in taskmix._ROOMS]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        taskmix.nothing  # noqa: B018


@pytest.mark.parametrize("path", NAMES)
def test_a_public_name_has_a_docstring(path: str) -> None:
    thing = NAMES[path]
    text = inspect.getdoc(thing)
    assert text
    assert text != inspect.getdoc(object)
    if inspect.isclass(thing):
        assert "__doc__" in vars(thing), "the docstring is the parent's"


def test_a_policy_is_there_without_torch() -> None:
    code = "import taskmix, sys; taskmix.Exp3S(['a', 'b']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_it_says_its_version() -> None:
    command = [sys.executable, "-m", "taskmix", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"taskmix {taskmix.__version__}\n"
