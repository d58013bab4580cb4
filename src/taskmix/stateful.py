"""Objects that save and restore what changes over time."""

from collections.abc import Mapping
from numbers import Number
from reprlib import repr as shortened
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError


class Stateful:
    """Saves and restores the attributes that a subclass lists in `_saved`."""

    # An array keeps its shape, dtype and write protection. An attribute with a `state_dict` is
    # saved by that; any other must be JSON-able.

    _saved: ClassVar[tuple[str, ...]] = ()

    def _state(self) -> dict[str, Any]:
        return {name.removeprefix("_"): _plain(getattr(self, name)) for name in self._saved}

    def _load(self, state: Mapping[str, Any]) -> None:
        for name in self._saved:
            key = name.removeprefix("_")
            if key not in state:
                raise UserError(f"state: expected a value for {key!r}, found {shortened([*state])}")
            setattr(self, name, _restored(getattr(self, name), state[key], key))
        self._derive(state)

    def _derive(self, state: Mapping[str, Any]) -> None:
        """Recompute the attributes that depend on the saved ones."""


def _plain(value: Any) -> Any:
    """Return a JSON-able copy."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _restored(current: Any, value: Any, key: str) -> Any:
    """Return a saved value with the type of the attribute's current value."""
    if isinstance(current, np.ndarray):
        return _restored_array(current, value, key)
    if hasattr(current, "load_state_dict"):
        current.load_state_dict(value)
        return current
    if current is not None and value is not None:
        kind: type = Number if isinstance(current, Number) else type(current)
        if not isinstance(value, kind):
            raise UserError(f"state, {key}: expected a {kind.__name__}, found {shortened(value)}")
    return _plain(value)


def _restored_array(current: NDArray[Any], value: Any, key: str) -> NDArray[Any]:
    try:
        array = np.array(value)
    except ValueError:  # rows of different lengths
        array = np.empty(0)
    fits = np.can_cast(array.dtype, current.dtype, "same_kind")
    if array.shape != current.shape or not fits:
        raise UserError(
            f"state, {key}: expected an array of {current.dtype} with the shape {current.shape},"
            f" found {shortened(value)}"
        )
    array = array.astype(current.dtype)
    array.setflags(write=current.flags.writeable)
    return array
