"""The state of policies: a saved distribution, and the draws whose outcomes were told."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: The number of draws that `ToldDraws` remembers.
_MAX_REMEMBERED = 1024
_ALL_BITS = (1 << _MAX_REMEMBERED) - 1


def saved_probabilities(state: Mapping[str, Any]) -> Array:
    """Return the distribution of the next draw in the state of a policy, read-only."""
    probabilities = np.array(state["next"]["probabilities"], dtype=np.float64)
    probabilities.setflags(write=False)
    return probabilities


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
            kept = self._bits << ahead if ahead < _MAX_REMEMBERED else 0
            self._bits = (kept | 1) & _ALL_BITS
            return True
        bit = 1 << -ahead if -ahead < _MAX_REMEMBERED else 0
        is_first = bit & ~self._bits != 0
        self._bits |= bit
        return is_first

    def state_dict(self) -> dict[str, Any]:
        return {"newest": self._newest, "bits": f"{self._bits:x}"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._newest = state["newest"]
        self._bits = int(state["bits"], 16)
