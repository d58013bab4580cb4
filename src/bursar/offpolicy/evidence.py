"""What an estimator hands back: a value, and what each step had to do with it."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bursar.offpolicy.pooling import Sample
from bursar.offpolicy.target import Target


@dataclass(frozen=True, eq=False)
class Evidence:
    """An estimate before its uncertainty is worked out.

    Args:
        value: the estimate.
        terms: each step's influence: the error of the value is, to first order, the mean of such
            terms, each with mean 0. Shape `(steps,)`.
        weights: how much each step counts, shape `(steps,)`.
    """

    value: float
    terms: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of_mean(cls, values: NDArray[np.float64], weights: NDArray[np.float64]) -> Self:
        """The evidence of an estimate that is a plain mean over the steps."""
        return cls(float(values.mean()), values - values.mean(), weights)

    def standard_error(self, decisions: NDArray[np.int64]) -> float:
        """The standard error where steps of one decision stand and fall together."""
        together = np.bincount(decisions, self.terms)
        count = len(together)
        if count < 2:
            return float("inf")
        return float(np.sqrt(together @ together * count / (count - 1)) / len(self.terms))

    def effective_sample_size(self) -> float:
        """(Σ u)² / Σ u²: so many equally weighted steps would be as good (Kish, 1965)."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))


class Estimator(Protocol):
    """Estimates what a target policy would have earned, from a sample of what was logged."""

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
