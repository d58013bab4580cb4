"""One parameter of a search as one axis of coordinates.

An axis with levels (whole numbers, steps, choices) has the coordinates 0, 1, …; a continuous axis
has those from 0 to 1. Coordinates are what is drawn, compared and moved along; `columns` is what
the Gaussian process sees of them, inside the unit cube.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution, CategoricalDistribution

Array = NDArray[np.float64]

_EVERY_LEVEL = 32
_PATTERN = np.array([0.1, 0.02, 0.004])


@dataclass(frozen=True)
class Axis(ABC):
    """One parameter.

    Args:
        name: the parameter's.
    """

    name: str

    @property
    @abstractmethod
    def count(self) -> int | None:
        """The number of levels, or None for a continuous axis."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Return random coordinates, shape `(count,)`, uniform on the parameter's own scale."""

    @abstractmethod
    def columns(self, coordinates: Array) -> Array:
        """Return what the process sees of `(rows,)` coordinates, shape `(rows, width)`."""

    @abstractmethod
    def value(self, coordinate: float) -> Any:
        """Return the parameter's value at a coordinate."""

    @abstractmethod
    def coordinate(self, value: Any) -> float | None:
        """Return the coordinate of a value, or None if the value is not on this axis."""

    @abstractmethod
    def neighbours(self, coordinate: float) -> Array:
        """Return the coordinates that a local search tries from this one, shape `(moves,)`."""


@dataclass(frozen=True)
class Continuous(Axis):
    """A float between two bounds.

    Args:
        name: the parameter's.
        low: the lower bound.
        high: the upper bound, above `low`.
        log: whether equal ratios, not equal differences, are equally far apart.
    """

    low: float
    high: float
    log: bool

    @property
    def count(self) -> None:
        """None: there are no levels."""
        return None

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Return uniform coordinates."""
        return rng.random(count)

    def columns(self, coordinates: Array) -> Array:
        """Return the coordinates as the one column."""
        return coordinates[:, None]

    def value(self, coordinate: float) -> float:
        """Return the float at this share of the way from the lower bound to the upper."""
        low, high = self._ends
        # Written as a mean, so that bounds of ±1e308 do not overflow.
        at = (1 - coordinate) * low + coordinate * high
        return min(max(math.exp(at) if self.log else at, self.low), self.high)

    def coordinate(self, value: Any) -> float | None:
        """Return how far the value is on the way from the lower bound to the upper."""
        if not self.low <= value <= self.high:
            return None
        low, high = self._ends
        at = math.log(value) if self.log else float(value)
        return min(max((at / 2 - low / 2) / (high / 2 - low / 2), 0.0), 1.0)

    def neighbours(self, coordinate: float) -> Array:
        """Return points before and after it, at three distances."""
        return np.clip(coordinate + np.concatenate([-_PATTERN, _PATTERN]), 0, 1)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)


@dataclass(frozen=True)
class Levels(Axis):
    """Whole numbers, or floats that are a step apart.

    Args:
        name: the parameter's.
        low: the first level.
        high: the last level.
        step: from one level to the next.
        log: whether equal ratios are equally far apart.
        whole: whether values are `int`.
    """

    low: float
    high: float
    step: float
    log: bool
    whole: bool

    @cached_property
    def count(self) -> int:
        """The number of levels."""
        return round((self.high - self.low) / self.step) + 1

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Return random levels, equally likely or, on a log scale, as likely as they are wide."""
        if not self.log:
            return rng.integers(0, self.count, count).astype(np.float64)
        half = self.step / 2
        low, high = math.log(self.low - half), math.log(self.high + half)
        drawn = np.exp(rng.uniform(low, high, count))
        return np.clip(np.round((drawn - self.low) / self.step), 0, self.count - 1)

    def columns(self, coordinates: Array) -> Array:
        """Return the share of the way to the last level; no column if there is but one level."""
        if self.count == 1:
            return np.empty((len(coordinates), 0))
        if not self.log:
            return coordinates[:, None] / (self.count - 1)
        width = math.log(self.high / self.low)
        return (np.log((self.low + coordinates * self.step) / self.low) / width)[:, None]

    def value(self, coordinate: float) -> int | float:
        """Return the value of a level."""
        return int(self._at(round(coordinate))) if self.whole else float(self._at(coordinate))

    def coordinate(self, value: Any) -> float | None:
        """Return the level of a value."""
        level = round((value - self.low) / self.step)
        exact = abs(self.low + level * self.step - value) <= 1e-6 * self.step
        return float(level) if exact and 0 <= level < self.count else None

    def neighbours(self, coordinate: float) -> Array:
        """Return all levels if they are few, else those 1, 2, 4, … levels away."""
        if self.count <= _EVERY_LEVEL:
            return np.arange(self.count, dtype=np.float64)
        moves = 2.0 ** np.arange(math.floor(math.log2(self.count)))
        away = coordinate + np.concatenate([-moves, moves])
        return away[(away >= 0) & (away < self.count)]

    def _at(self, level: float) -> float:
        # The last level may miss the upper bound by a rounding error.
        return min(self.low + level * self.step, self.high)


@dataclass(frozen=True)
class UnorderedAxis(Axis):
    """A choice without order, a column for each.

    Args:
        name: the parameter's.
        distribution: Optuna's, which knows the choices by number.
    """

    distribution: "CategoricalDistribution"

    @property
    def count(self) -> int:
        """The number of choices."""
        return len(self.distribution.choices)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Return the numbers of random choices."""
        return rng.integers(0, self.count, count).astype(np.float64)

    def columns(self, coordinates: Array) -> Array:
        """Return a one in the column of each choice; no column if there is but one."""
        width = self.count if self.count > 1 else 0
        return np.asarray(coordinates[:, None] == np.arange(width), dtype=np.float64)

    def value(self, coordinate: float) -> Any:
        """Return the choice with this number."""
        return self.distribution.choices[round(coordinate)]

    def coordinate(self, value: Any) -> float | None:
        """Return the number of a choice."""
        try:
            return float(self.distribution.to_internal_repr(value))
        except ValueError:
            return None

    def neighbours(self, coordinate: float) -> Array:
        """Return all choices."""
        return np.arange(self.count, dtype=np.float64)


def axis(name: str, distribution: "BaseDistribution") -> Axis:
    """Return the axis of an Optuna distribution.

    >>> from optuna.distributions import IntDistribution
    >>> rate = axis("rate", IntDistribution(1, 100, log=True))
    >>> rate.count, rate.value(9), float(rate.columns(np.array([9.0]))[0, 0])
    (100, 10, 0.5)
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return UnorderedAxis(name, distribution)
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        raise TypeError(f"{name}: expected a distribution of Optuna's, found {distribution!r}")
    low, high, step = distribution.low, distribution.high, distribution.step
    whole = isinstance(distribution, IntDistribution)
    if distribution.single():
        return Levels(name, low, low, 1, False, whole)
    if step is None:
        return Continuous(name, low, high, distribution.log)
    return Levels(name, low, high, step, distribution.log, whole)
