"""Rewards of any size, brought to [-1, 1]."""

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any, Protocol

from taskmix.rng import restore, state_of, stream


class Scaler(Protocol):
    """Brings rewards to a common scale, and remembers what it has seen."""

    def __call__(self, value: float) -> float:
        """The scaled reward; the value counts among those seen."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes over time, as JSON-able values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of a scaler with the same arguments."""
        ...


class QuantileScaler:
    """Scales a reward by quantiles of the rewards so far.

    Equation 6 of Glover and Hokamp (2019), after Graves et al. (2017): with q20 and q80 read from a
    reservoir sample of all unscaled rewards, a reward becomes -1 below q20, +1 above q80, and
    2 (r - q20) / (q80 - q20) - 1 between. A reward enters the reservoir before the quantiles are
    read; while they are equal, every reward is 0.

    Args:
        size: how many rewards the reservoir holds.
        low: the quantile that becomes -1.
        high: the quantile that becomes +1.

    >>> scaler = QuantileScaler()
    >>> [round(scaler(gain), 2) + 0.0 for gain in [0.5, 0.1, 0.3, -9.0, 0.2]]
    [0.0, -1.0, 0.0, -1.0, 0.86]
    """

    def __init__(self, size: int = 1000, low: float = 0.2, high: float = 0.8) -> None:
        if size < 1 or not 0 <= low < high <= 1:
            raise ValueError(
                "size, low, high: expected size of at least 1 and 0 <= low < high <= 1,"
                f" found {size}, {low}, {high}"
            )
        self._size = size
        self._low = low
        self._high = high
        self._seen = 0
        self._rng = stream(0, "reservoir")
        self._reservoir: list[float] = []
        self._sorted: list[float] = []

    def __call__(self, value: float) -> float:
        """The scaled reward."""
        self._insert(value)
        low, high = self._quantile(self._low), self._quantile(self._high)
        if low == high:
            return 0.0
        if not low < value < high:
            return -1.0 if value <= low else 1.0
        # Halves here and below, so that the difference of two huge rewards stays finite.
        return 2 * ((value / 2 - low / 2) / (high / 2 - low / 2)) - 1

    def _insert(self, value: float) -> None:
        # Reservoir sampling: each of the rewards so far is kept with the same probability.
        self._seen += 1
        if len(self._reservoir) < self._size:
            self._reservoir.append(value)
            insort(self._sorted, value)
            return
        place = int(self._rng.random() * self._seen)
        if place < self._size:
            # The sorted copy makes a quantile two look-ups instead of a sort.
            del self._sorted[bisect_left(self._sorted, self._reservoir[place])]
            insort(self._sorted, value)
            self._reservoir[place] = value

    def _quantile(self, level: float) -> float:
        place = level * (len(self._sorted) - 1)
        below = int(place)
        share = place - below
        low = self._sorted[below] / 2
        return 2 * (low + share * (self._sorted[below + 1] / 2 - low)) if share > 0 else 2 * low

    def state_dict(self) -> dict[str, Any]:
        """Return the reservoir and its random stream."""
        return {"seen": self._seen, "reservoir": [*self._reservoir], "rng": state_of(self._rng)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of a scaler with the same arguments."""
        self._seen = state["seen"]
        self._reservoir = list(state["reservoir"])
        self._sorted = sorted(self._reservoir)
        self._rng = restore(state["rng"])
