"""What an estimator returns: a value, and what each step had to do with it."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy.pooling import Sample
from taskmix.offpolicy.target import Target


@dataclass(frozen=True, eq=False)
class Evidence:
    """An estimate before its uncertainty is worked out.

    Args:
        value: the estimate.
        terms: each observation's influence, in the order of the run: the error of the value is, to
            first order, the mean of such terms, each with mean 0. Shape `(observations,)`.
        weights: how much each observation counts, shape `(observations,)`.
    """

    value: float
    terms: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of_mean(cls, values: NDArray[np.float64], weights: NDArray[np.float64]) -> Self:
        """Return the evidence of an estimate that is a plain mean over the steps."""
        return cls(float(values.mean()), values - values.mean(), weights)

    def by_decision(self, decisions: NDArray[np.int64]) -> "Evidence":
        """The same with one observation a decision: steps of one decision are no independent ones.

        Args:
            decisions: the number of each step's decision, shape `(steps,)`.
        """
        _, number = np.unique(decisions, return_inverse=True)
        terms = np.bincount(number, self.terms).astype(np.float64)
        terms *= len(terms) / len(self.terms)
        weights = np.bincount(number, self.weights).astype(np.float64)
        return Evidence(self.value, terms, weights)

    def standard_error(self) -> float:
        """The standard error of the value, from the differences between successive observations.

        They are free of what changes slowly over the run: where rewards fall in the course of a
        training, their mean over the run has no error for it, though the rewards differ widely (von
        Neumann, 1941: the variance is half the mean square of the differences). An observation with
        the share h of all weight pulls the value towards itself, which makes its term too small by
        the factor 1 - h, as the jackknife shows.
        """
        differences = self._differences()
        count = len(differences)
        if count == 0:
            return float("inf")
        return float(np.sqrt(differences @ differences / (2 * count * (count + 1))))

    def degrees_of_freedom(self) -> float:
        """How many of the squared differences the standard error rests on, by Kish's count."""
        squares = self._differences() ** 2
        total = float(squares @ squares)
        return max(float(squares.sum()) ** 2 / total, 1.0) if total > 0 else 1.0

    def effective_sample_size(self) -> float:
        """(Σ u)² / Σ u²: so many equally weighted ones would be as good (Kish, 1965)."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))

    def _differences(self) -> NDArray[np.float64]:
        share = self.weights / self.weights.sum()
        return np.diff(self.terms / np.maximum(1 - share, 1e-9))


class Estimator(Protocol):
    """Estimates what a target policy would have earned, from a sample of what was logged."""

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
