"""What improvement maximises, and all it needs to know of a log."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy.pooling import Sample


@dataclass(frozen=True, eq=False)
class Totals:
    """The log as the weighted value of a fixed policy p sees it: V(p) = p·s / p·c.

    With u_t = p(a_t) / π_t(a_t) the value Σ u_t r_t / Σ u_t depends on the log through two numbers
    a task only.

    Args:
        weights: c_k = Σ_{t: a_t = k} 1 / π_t(a_t), above 0, shape `(tasks,)`.
        rewards: s_k, the same sum with each term times r_t, shape `(tasks,)`.
    """

    weights: NDArray[np.float64]
    rewards: NDArray[np.float64]

    @classmethod
    def of(cls, sample: Sample) -> "Totals":
        """Return the totals of a sample.

        A task that could be drawn but never was is taken for one of average worth: c and s are
        those of the mean drawn task. Left at 0 it would cost nothing whatever its share, and all
        of the distribution would flee to the tasks about which nothing is known.
        """
        inverse = 1 / sample.propensities
        weights = sample.by_task(inverse)
        rewards = sample.by_task(inverse * sample.rewards)
        unseen = weights == 0
        if np.any(unseen):
            weights[unseen] = weights[~unseen].mean()
            rewards[unseen] = rewards[~unseen].mean()
        return cls(weights, rewards)

    def value(self, probabilities: NDArray[np.float64]) -> float:
        """V(p)."""
        return float(probabilities @ self.rewards / (probabilities @ self.weights))


def entropy(probabilities: NDArray[np.float64]) -> float:
    """Return the Shannon entropy H(p) in nats."""
    positive = probabilities[probabilities > 0]
    return float(-(positive @ np.log(positive)))


def objective(totals: Totals, probabilities: NDArray[np.float64], entropy_weight: float) -> float:
    """V(p) + λ H(p)."""
    return totals.value(probabilities) + entropy_weight * entropy(probabilities)


#: Finds the distribution that maximises V + λH.
Solver = Callable[[Totals, float], NDArray[np.float64]]
