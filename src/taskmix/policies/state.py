"""The state of a policy: its saved attributes, and the draws whose outcomes were told."""

from collections.abc import Mapping
from numbers import Number
from reprlib import repr as shortened
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError

Array = NDArray[np.float64]

#: The number of draws that `ToldDraws` remembers.
_REMEMBERED = 1024
_ALL_BITS = (1 << _REMEMBERED) - 1


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


def saved_probabilities(state: Mapping[str, Any]) -> Array:
    """Return the distribution of the next draw in the state of a policy, read-only."""
    probabilities = np.array(state["next"]["probabilities"], dtype=np.float64)
    probabilities.setflags(write=False)
    return probabilities


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


class ToldDraws:
    """Remembers which draws have been told their outcome.

    For policies that accept outcomes in any order but must use each of them once. It remembers the
    latest 1,024 draws; older draws count as told.

    >>> told = ToldDraws()
    >>> [told.first(number) for number in (1, 3, 3, 2, 2)]
    [True, True, False, True, False]
    """

    def __init__(self) -> None:
        self._newest = 0
        # Bit i stands for the draw i before the newest.
        self._bits = 0

    def first(self, number: int) -> bool:
        """Mark a draw as told, and return whether it is the first time."""
        ahead = number - self._newest
        if ahead > 0:
            self._newest = number
            # A longer shift would only compute bits that are dropped.
            kept = self._bits << ahead if ahead < _REMEMBERED else 0
            self._bits = (kept | 1) & _ALL_BITS
            return True
        bit = 1 << -ahead if -ahead < _REMEMBERED else 0
        is_first = bit & ~self._bits != 0
        self._bits |= bit
        return is_first

    def state_dict(self) -> dict[str, Any]:
        return {"newest": self._newest, "bits": f"{self._bits:x}"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._newest = state["newest"]
        self._bits = int(state["bits"], 16)
