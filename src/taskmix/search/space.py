"""The points of a search: which are one and the same, and what the process sees of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from taskmix.search.axes import Array, Axis, axis

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Canonical = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Features = Callable[[Mapping[str, Any]], Sequence[float]]
Key = tuple[float, ...]


@dataclass(frozen=True)
class Space:
    """All points that a search may try, as rows of coordinates.

    Args:
        axes: one for each parameter.
        canonical: from a point to the one that stands for all its equals; None if all differ.
        features: what the process sees of a point; None for the parameters themselves.
    """

    axes: tuple[Axis, ...]
    canonical: Canonical | None = None
    features: Features | None = None

    @classmethod
    def of(
        cls,
        distributions: Mapping[str, "BaseDistribution"],
        canonical: Canonical | None = None,
        features: Features | None = None,
    ) -> "Space":
        """Return the space of some distributions.

        Args:
            distributions: by parameter.
            canonical: see `Space`.
            features: see `Space`.
        """
        axes = tuple(axis(name, distribution) for name, distribution in distributions.items())
        return cls(axes, canonical, features)

    @property
    def size(self) -> int | None:
        """The number of points, equals counted apart; None if an axis is continuous."""
        counts = [axis.count for axis in self.axes]
        return None if None in counts else prod(count or 0 for count in counts)

    @cached_property
    def continuous(self) -> tuple[int, ...]:
        """The columns of `inputs` along which an acquisition function has a gradient."""
        if self.features is not None:
            return ()
        free, at = [], 0
        for each in self.axes:
            if each.count is None:
                free.append(at)
            at += each.columns(np.zeros(1)).shape[1]
        return tuple(free)

    def rows(self) -> Array:
        """Return every point of a space without continuous axes, shape `(size, axes)`."""
        grid = np.meshgrid(*(np.arange(axis.count or 0.0) for axis in self.axes), indexing="ij")
        return np.stack([each.ravel() for each in grid], axis=1)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Return random points, shape `(count, axes)`.

        Args:
            rng: where they come from.
            count: how many.
        """
        return np.stack([axis.draw(rng, count) for axis in self.axes], axis=1)

    def params(self, row: Array) -> dict[str, Any]:
        """Return the parameters at a row of coordinates."""
        pairs = zip(self.axes, row.tolist(), strict=True)
        return {axis.name: axis.value(coordinate) for axis, coordinate in pairs}

    def row(self, params: Mapping[str, Any]) -> Array | None:
        """Return the coordinates of some parameters, or None if they are not in this space."""
        if any(axis.name not in params for axis in self.axes):
            return None
        found = [axis.coordinate(params[axis.name]) for axis in self.axes]
        return None if None in found else np.array(found, dtype=np.float64)

    def unified(self, rows: Array) -> Array:
        """Return the distinct points that stand for these, shape `(at most rows, axes)`."""
        if self.canonical is not None and len(rows):
            rows = np.stack([self.representative(row) for row in rows])
        return np.unique(rows, axis=0)

    def key(self, row: Array) -> Key:
        """Return what is equal for equal points."""
        return tuple(self.representative(row).tolist())

    def inputs(self, rows: Array) -> Array:
        """Return what the process sees of these points, shape `(rows, columns)`."""
        if self.features is not None:
            return np.array([self.features(self.params(row)) for row in rows], dtype=np.float64)
        columns = [axis.columns(rows[:, k]) for k, axis in enumerate(self.axes)]
        return np.concatenate(columns, axis=1)

    def moved(self, row: Array, inputs: Array) -> Array:
        """Return the row whose continuous coordinates are those of a row of inputs."""
        moved = row.copy()
        moved[[axis.count is None for axis in self.axes]] = inputs[list(self.continuous)]
        return moved

    def neighbours(self, row: Array) -> Array:
        """Return the points that differ in one parameter, for a local search.

        Along an axis with a gradient there are none, unless `features` hides the gradient.
        """
        found = []
        for k, each in enumerate(self.axes):
            if each.count is None and self.continuous:
                continue
            coordinates = each.neighbours(row[k])
            moves = np.tile(row, (len(coordinates), 1))
            moves[:, k] = coordinates
            found.append(moves)
        return np.concatenate(found) if found else np.empty((0, len(row)))

    def representative(self, row: Array) -> Array:
        """Return the point that stands for this one and all its equals."""
        if self.canonical is None:
            return row
        point = self.params(row)
        stands = self.canonical(point)
        found = self.row(stands)
        if found is None:
            raise ValueError(
                f"canonical: expected a point of the search space for {point}, found {stands}"
            )
        return found
