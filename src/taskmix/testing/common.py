"""What the kits share."""

import json
from collections.abc import Callable
from typing import Any

#: What a kit says of a copy that was restored from its state and goes on otherwise.
LOST = "the restored copy goes on otherwise: what is saved and loaded leaves something out"


def names(count: int) -> list[str]:
    """Return so many names of tasks.

    >>> names(2)
    ['task0', 'task1']
    """
    return [f"task{number}" for number in range(count)]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """A state as it comes back from a file; raise `TypeError` or `ValueError` if it is not JSON."""
    restored: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    return restored


def assert_refused(load: Callable[[dict[str, Any]], None], state: dict[str, Any]) -> None:
    """Raise `AssertionError` unless this state is refused with a `ValueError`."""
    try:
        load(state)
    except ValueError:
        return
    raise AssertionError("expected a ValueError for the state of other tasks")
