"""Which draws have been told, in bounded memory."""

from collections.abc import Mapping
from typing import Any

#: How many draws before the newest one are remembered.
_REMEMBERED = 1024


class ToldDraws:
    """Says of each draw whether its outcome is told for the first time.

    For a policy that learns from outcomes in any order but must count none of them twice. Only the
    latest 1,024 numbers are remembered; an outcome that is later than that counts as told.

    >>> told = ToldDraws()
    >>> [told.first(number) for number in (1, 3, 3, 2, 2)]
    [True, True, False, True, False]
    """

    def __init__(self) -> None:
        self._newest = 0
        # Bit i stands for the draw i before the newest.
        self._bits = 0

    def first(self, number: int) -> bool:
        """Return whether the draw of this number was not told before; from now on it is."""
        ahead = number - self._newest
        if ahead > 0:
            self._newest = number
            # A longer shift would only make a larger number out of bits that are dropped.
            kept = self._bits << ahead if ahead < _REMEMBERED else 0
            self._bits = (kept | 1) & _ALL
            return True
        bit = 1 << -ahead if -ahead < _REMEMBERED else 0
        is_first = bit & ~self._bits != 0
        self._bits |= bit
        return is_first

    def state_dict(self) -> dict[str, Any]:
        """Return the newest number and the bits, as JSON-able values."""
        return {"newest": self._newest, "bits": f"{self._bits:x}"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The counterpart of `state_dict`."""
        self._newest = state["newest"]
        self._bits = int(state["bits"], 16)


_ALL = (1 << _REMEMBERED) - 1
