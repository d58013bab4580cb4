"""The drawing of the rooms stays true, and the door is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import taskmix

SOURCE = Path(taskmix.__file__).parent

# Each line may use itself and the lines above it. Rooms on one line do not use each other.
ORDER = [
    ["errors"],
    ["files", "records", "run_info", "rng", "schedule", "tables", "stateful"],
    ["tasks"],
    ["models"],
    ["uncertainty"],
    ["policies", "selection", "weighting"],
    ["families"],
    ["journal", "testing"],
    ["config"],
    ["mixing"],
    ["training"],
    ["offpolicy", "search", "bandit"],
    ["studies", "recipes"],
    ["report", "integrations"],
    ["cli"],
    ["__main__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(ORDER) for room in rooms}
APART = {"offpolicy": {"training"}, "bandit": {"training"}}


def modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def rooms_used(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "taskmix":
                names.update(f"taskmix.{alias.name}" for alias in node.names)
            elif node.module:
                names.add(node.module)
    used = {name.split(".")[1] for name in names if name.startswith("taskmix.")}
    return used - {room_of(path)}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_uses_only_the_rooms_above_it(path: Path) -> None:
    room = room_of(path)
    assert room in FLOOR, f"{room} has no place in the order of the rooms"
    for other in rooms_used(path):
        assert FLOOR[other] < FLOOR[room], f"{room} may not use {other}"
        assert other not in APART.get(room, ()), f"{room} may not use {other}"


def test_only_the_changelog_has_the_old_name() -> None:
    old = "bur" + "sar"
    root = Path(__file__).parent.parent
    listed = subprocess.run(
        ["git", "grep", "--untracked", "-il", old], cwd=root, capture_output=True, text=True
    )
    assert listed.stdout.split() == ["CHANGELOG.md"]


@pytest.mark.parametrize(
    "name", ["taskmix", "taskmix.offpolicy", "taskmix.bandit", "taskmix.uncertainty", "taskmix.cli"]
)
def test_importing_the_light_rooms_loads_no_torch(name: str) -> None:
    heavy = ["torch", "transformers", "plotly", "datasets", "pandas"]
    code = f"import {name}, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_two_classes_have_one_name() -> None:
    names = [
        node.name
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"MixtureCallback"}  # one for each host that has callbacks
