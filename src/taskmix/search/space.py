"""The search space: an axis of coordinates for each parameter."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution, CategoricalDistribution

Array = NDArray[np.float64]
Canonical = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Features = Callable[[Mapping[str, Any]], Sequence[float]]
Key = tuple[float, ...]

#: With at most this many levels, a local search tries all of them.
_MAX_LEVELS_TRIED = 32
#: The distances at which a local search tries a continuous axis.
_STEPS = np.array([0.1, 0.02, 0.004])


@dataclass(frozen=True)
class Axis(ABC):
    """A parameter, with the coordinates 0, 1, … for levels, or from 0 to 1 if it is continuous."""

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
        """Return the inputs of the process for `(rows,)` coordinates, shape `(rows, width)`."""

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
    """A float between two bounds, on a linear or logarithmic scale."""

    low: float
    high: float
    log: bool

    @property
    def count(self) -> None:
        return None

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        return rng.random(count)

    def columns(self, coordinates: Array) -> Array:
        return coordinates[:, None]

    def value(self, coordinate: float) -> float:
        low, high = self._ends
        # Written as a mean, so that bounds of ±1e308 do not overflow.
        at = (1 - coordinate) * low + coordinate * high
        return min(max(math.exp(at) if self.log else at, self.low), self.high)

    def coordinate(self, value: Any) -> float | None:
        if not self.low <= value <= self.high:
            return None
        low, high = self._ends
        at = math.log(value) if self.log else float(value)
        return min(max((at / 2 - low / 2) / (high / 2 - low / 2), 0.0), 1.0)

    def neighbours(self, coordinate: float) -> Array:
        return np.clip(coordinate + np.concatenate([-_STEPS, _STEPS]), 0, 1)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)


@dataclass(frozen=True)
class Levels(Axis):
    """Integers, or floats that are a step apart."""

    low: float
    high: float
    step: float
    log: bool
    integer: bool

    @cached_property
    def count(self) -> int:
        return round((self.high - self.low) / self.step) + 1

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        if not self.log:
            return rng.integers(0, self.count, count).astype(np.float64)
        half = self.step / 2
        low, high = math.log(self.low - half), math.log(self.high + half)
        drawn = np.exp(rng.uniform(low, high, count))
        return np.clip(np.round((drawn - self.low) / self.step), 0, self.count - 1)

    def columns(self, coordinates: Array) -> Array:
        if self.count == 1:
            return np.empty((len(coordinates), 0))
        if not self.log:
            return coordinates[:, None] / (self.count - 1)
        width = math.log(self.high / self.low)
        return (np.log((self.low + coordinates * self.step) / self.low) / width)[:, None]

    def value(self, coordinate: float) -> int | float:
        return int(self._at(round(coordinate))) if self.integer else float(self._at(coordinate))

    def coordinate(self, value: Any) -> float | None:
        level = round((value - self.low) / self.step)
        exact = abs(self.low + level * self.step - value) <= 1e-6 * self.step
        return float(level) if exact and 0 <= level < self.count else None

    def neighbours(self, coordinate: float) -> Array:
        if self.count <= _MAX_LEVELS_TRIED:
            return np.arange(self.count, dtype=np.float64)
        moves = 2.0 ** np.arange(math.floor(math.log2(self.count)))  # 1, 2, 4, … levels away
        away = coordinate + np.concatenate([-moves, moves])
        return away[(away >= 0) & (away < self.count)]

    def _at(self, level: float) -> float:
        # The last level may miss the upper bound by a rounding error.
        return min(self.low + level * self.step, self.high)


@dataclass(frozen=True)
class UnorderedAxis(Axis):
    """A choice without order, with a column for each option; coordinates are its indices."""

    distribution: "CategoricalDistribution"

    @property
    def count(self) -> int:
        return len(self.distribution.choices)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        return rng.integers(0, self.count, count).astype(np.float64)

    def columns(self, coordinates: Array) -> Array:
        width = self.count if self.count > 1 else 0
        return np.asarray(coordinates[:, None] == np.arange(width), dtype=np.float64)

    def value(self, coordinate: float) -> Any:
        return self.distribution.choices[round(coordinate)]

    def coordinate(self, value: Any) -> float | None:
        try:
            return float(self.distribution.to_internal_repr(value))
        except ValueError:
            return None

    def neighbours(self, coordinate: float) -> Array:
        return np.arange(self.count, dtype=np.float64)


def make_axis(name: str, distribution: "BaseDistribution") -> Axis:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return UnorderedAxis(name, distribution)
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        raise TypeError(f"{name}: expected a distribution of Optuna, found {distribution!r}")
    low, high, step = distribution.low, distribution.high, distribution.step
    integer = isinstance(distribution, IntDistribution)
    if distribution.single():
        return Levels(name, low, low, 1, False, integer)
    if step is None:
        return Continuous(name, low, high, distribution.log)
    return Levels(name, low, high, step, distribution.log, integer)


@dataclass(frozen=True)
class Space:
    """All points of a search, as rows of coordinates."""

    axes: tuple[Axis, ...]
    canonical: Canonical | None = None  # from a point to the representative of its equivalents
    features: Features | None = None  # the inputs of the process; None for the scaled parameters

    @classmethod
    def of(
        cls,
        distributions: Mapping[str, "BaseDistribution"],
        canonical: Canonical | None = None,
        features: Features | None = None,
    ) -> "Space":
        axes = tuple(make_axis(name, distribution) for name, distribution in distributions.items())
        return cls(axes, canonical, features)

    @property
    def size(self) -> int | None:
        """The number of points, including equivalent ones; None if an axis is continuous."""
        counts = [axis.count for axis in self.axes]
        return None if None in counts else math.prod(count or 0 for count in counts)

    @cached_property
    def continuous(self) -> tuple[int, ...]:
        """The columns of `inputs` along which an acquisition function has a gradient."""
        if self.features is not None:
            return ()
        columns, first = [], 0
        for axis in self.axes:
            if axis.count is None:
                columns.append(first)
            first += axis.columns(np.zeros(1)).shape[1]
        return tuple(columns)

    def rows(self) -> Array:
        """Return every point of a space without continuous axes, shape `(size, axes)`."""
        grid = np.meshgrid(*(np.arange(axis.count or 0.0) for axis in self.axes), indexing="ij")
        return np.stack([coordinates.ravel() for coordinates in grid], axis=1)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Return random points, shape `(count, axes)`."""
        return np.stack([axis.draw(rng, count) for axis in self.axes], axis=1)

    def params(self, row: Array) -> dict[str, Any]:
        pairs = zip(self.axes, row.tolist(), strict=True)
        return {axis.name: axis.value(coordinate) for axis, coordinate in pairs}

    def row(self, params: Mapping[str, Any]) -> Array | None:
        """Return the coordinates of some parameters, or None if they are not in this space."""
        if any(axis.name not in params for axis in self.axes):
            return None
        row = [axis.coordinate(params[axis.name]) for axis in self.axes]
        return None if None in row else np.array(row, dtype=np.float64)

    def unified(self, rows: Array) -> Array:
        """Return the distinct representatives of these points, shape `(at most rows, axes)`."""
        if self.canonical is not None and len(rows):
            rows = np.stack([self.representative(row) for row in rows])
        return np.unique(rows, axis=0)

    def key(self, row: Array) -> Key:
        """Return a key, the same for equivalent points."""
        return tuple(self.representative(row).tolist())

    def inputs(self, rows: Array) -> Array:
        """Return the inputs of the process for these points, shape `(rows, columns)`."""
        if self.features is not None:
            return np.array([self.features(self.params(row)) for row in rows], dtype=np.float64)
        columns = [axis.columns(rows[:, k]) for k, axis in enumerate(self.axes)]
        return np.concatenate(columns, axis=1)

    def moved(self, row: Array, inputs: Array) -> Array:
        """Return the row with its continuous coordinates taken from a row of inputs."""
        moved = row.copy()
        moved[[axis.count is None for axis in self.axes]] = inputs[list(self.continuous)]
        return moved

    def neighbours(self, row: Array) -> Array:
        """Return the points for a local search, which differ in one parameter without gradient."""
        neighbours = []
        for k, axis in enumerate(self.axes):
            if axis.count is None and self.continuous:
                continue
            coordinates = axis.neighbours(row[k])
            moved = np.tile(row, (len(coordinates), 1))
            moved[:, k] = coordinates
            neighbours.append(moved)
        return np.concatenate(neighbours) if neighbours else np.empty((0, len(row)))

    def representative(self, row: Array) -> Array:
        if self.canonical is None:
            return row
        point = self.params(row)
        canonical = self.canonical(point)
        representative = self.row(canonical)
        if representative is None:
            raise ValueError(
                f"canonical: expected a point of the search space for {point}, found {canonical}"
            )
        return representative
