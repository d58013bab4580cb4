"""The distribution that maximises V + λH, as the paper finds it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.offpolicy.objective import Totals


@dataclass(frozen=True)
class Evolution:
    """Maximises V(p) + λ H(p) for p = softmax(ω) by CMA-ES over ω.

    Glover and Hokamp (2019, section 3.3.2): 20 generations of 64 on their bandit, 50 on GLUE. It
    starts at ω = 0 and returns the mean of the search distribution, not the best sample. Needs the
    extra `improve`.

    Args:
        generations: how many at most; it stops when it has converged.
        population: candidates in each.
        sigma: the first step size.
        seed: of the candidates.
    """

    generations: int = 50
    population: int = 64
    sigma: float = 0.5
    seed: int = 0

    def __call__(self, totals: Totals, entropy_weight: float) -> NDArray[np.float64]:
        """The distribution, shape `(tasks,)`."""
        tasks = len(totals.weights)
        if tasks == 1:
            return np.ones(1)
        try:
            from cmaes import CMA
        except ImportError:
            raise UserError(
                "solver: expected the package cmaes for 'cmaes', found it missing; "
                "pip install 'taskmix[improve]', or use solver='exact'"
            ) from None
        search = CMA(
            mean=np.zeros(tasks),
            sigma=self.sigma,
            population_size=self.population,
            seed=self.seed,
        )
        for _ in range(self.generations):
            omegas = np.array([search.ask() for _ in range(self.population)])
            costs = -_objectives(totals, omegas, entropy_weight)
            search.tell(list(zip(omegas, costs.tolist(), strict=True)))
            if search.should_stop():
                break
        return _softmax(search.mean)


def _softmax(omega: NDArray[np.float64]) -> NDArray[np.float64]:
    p: NDArray[np.float64] = np.exp(omega - omega.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


def _objectives(
    totals: Totals, omegas: NDArray[np.float64], entropy_weight: float
) -> NDArray[np.float64]:
    p = _softmax(omegas)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    objectives: NDArray[np.float64] = (p @ totals.rewards) / (p @ totals.weights)
    objectives += entropy_weight * entropy
    return objectives
