"""The shapes of learning curves: how the part that is learned rises with training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.state import Array


@dataclass(frozen=True)
class ShapeFamily:
    """Shapes of one kind: the probability of the kind, and pairs of onset and tail to try."""

    prior: float
    exponents: tuple[tuple[float, float], ...]


FAMILIES: Mapping[str, ShapeFamily] = {
    "power law": ShapeFamily(0.24, tuple((1.0, tail) for tail in (0.25, 0.5, 1.0, 2.0))),
    "late power law": ShapeFamily(0.24, tuple(product((2.0, 4.0), (0.25, 0.5, 1.0)))),
    "log-logistic": ShapeFamily(0.24, tuple((onset, onset) for onset in (1.5, 2.0, 3.0, 5.0))),
    "exponential": ShapeFamily(0.24, ((1.0, math.inf),)),
    "linear": ShapeFamily(0.04, ((math.inf, math.inf),)),
}
"""The families by name.

With training x in units of a scale, an onset q and a tail t, the learned part of a score is
1 - (1 + x^q)^(-t/q): it begins as x^q and approaches 1 as x^-t. An onset of 1 is a power law, of
which one with a small tail is a logarithm over a wide range; a larger onset begins late; with
t = q it is the log-logistic curve. The limits are the exponential curve, and for synthetic tasks
the linear one with a ceiling.
"""


@dataclass(frozen=True, eq=False)
class Shapes:
    """Several shapes: a family, a scale, an onset and a tail each, all of shape `(shapes,)`.

    >>> shapes = Shapes.grid(np.array([10.0]), ["exponential", "linear"])
    >>> shapes.rise(np.array([0.0, 10.0, 30.0])).round(2).tolist()
    [[0.0, 0.63, 0.95], [0.0, 1.0, 1.0]]
    """

    family: NDArray[np.int64]  # the index in `FAMILIES`
    scale: Array
    onset: Array
    tail: Array

    @classmethod
    def grid(cls, scales: Array, families: Sequence[str] | None = None) -> Self:
        """Return all combinations of the families, their exponents and these scales."""
        cells = [
            (number, scale, *exponents)
            for number, (name, family) in enumerate(FAMILIES.items())
            if families is None or name in families
            for exponents in family.exponents
            for scale in scales.tolist()
        ]
        number, scale, onset, tail = zip(*cells, strict=True)
        return cls(np.array(number), np.array(scale), np.array(onset), np.array(tail))

    def __len__(self) -> int:
        return len(self.family)

    def __getitem__(self, index: NDArray[np.int64]) -> "Shapes":
        return Shapes(*(column[index] for column in vars(self).values()))

    def prior(self) -> Array:
        """Return the probabilities of the families, divided equally among their shapes."""
        priors = np.array([family.prior for family in FAMILIES.values()])
        counts = np.bincount(self.family, minlength=len(priors))
        weights: Array = priors[self.family] / counts[self.family]
        weights /= weights.sum()
        return weights

    def rise(self, training: Array) -> Array:
        """Return the learned part from 0 to 1, shape `(shapes, points)`.

        Args:
            training: of shape `(points,)`, or `(shapes, points)`.
        """
        relative = training / self.scale[:, None]
        rise = np.minimum(relative, 1.0)  # of the linear shapes
        exponential = np.isinf(self.tail) & np.isfinite(self.onset)
        rise[exponential] = -np.expm1(-relative[exponential])
        power = np.isfinite(self.tail)
        onset, tail = self.onset[power, None], self.tail[power, None]
        rise[power] = -np.expm1(-tail / onset * np.log1p(relative[power] ** onset))
        return rise
