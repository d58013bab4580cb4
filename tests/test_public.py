"""The public face: what is there, that it is light, and that it is explained."""

import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import bursar

SCRIPT = Path(__file__).parents[1] / "scripts" / "reference.py"
REFERENCE = runpy.run_path(str(SCRIPT))
NAMES = {
    path: thing
    for path, thing in REFERENCE["names"]()
    if inspect.isclass(thing) or inspect.isroutine(thing)
}


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(bursar) == sorted(bursar.__all__)
    assert all(getattr(bursar, name) is not None for name in bursar.__all__)


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bursar.nothing  # noqa: B018


@pytest.mark.parametrize("path", NAMES)
def test_a_public_name_has_a_docstring(path: str) -> None:
    thing = NAMES[path]
    text = inspect.getdoc(thing)
    assert text
    assert text != inspect.getdoc(object)
    if inspect.isclass(thing):
        assert "__doc__" in vars(thing), "the docstring is the parent's"


def test_the_reference_is_up_to_date() -> None:
    page: Path = REFERENCE["PAGE"]
    hint = "run: python scripts/reference.py"
    assert page.read_text() == REFERENCE["page"](), hint


def test_a_policy_is_there_without_torch() -> None:
    code = "import bursar, sys; bursar.Exp3S(['a', 'b']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_it_says_its_version() -> None:
    command = [sys.executable, "-m", "bursar", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"bursar {bursar.__version__}\n"
