"""The MTL bandit: tasks that learn when drawn and forget all the while."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.fixed import Fixed


@dataclass(frozen=True, eq=False)
class Environment:
    """A synthetic multi-task training, where each arm is a task and its score the skill at it.

    The MTL bandit of Glover and Hokamp (2019, section 4.1). Every score starts at 0. A pull of arm
    k raises its score by LI_k, to at most MaxP_k; then every arm forgets FI_k, to at least 0. The
    learning increment LI_k = MaxP_k / (T · oracle_k) is such that draws from the oracle bring each
    arm to its ceiling in T steps, but for forgetting and luck.

    Args:
        oracle: the distribution that the increments were made for, shape `(arms,)`.
        ceilings: the highest score of each arm, MaxP, shape `(arms,)`.
        learning: what a pull adds to the score, LI, shape `(arms,)`.
        forgetting: what every step takes from it, FI, shape `(arms,)`.

    >>> from taskmix.rng import stream
    >>> environment = Environment.random(arms=3, steps=1000, rng=stream(1, "environment"))
    >>> environment.tasks
    ('arm1', 'arm2', 'arm3')
    >>> scores = environment.after(np.zeros(3), 0)
    >>> bool(scores[0] > 0), scores[1:].tolist()
    (True, [0.0, 0.0])
    """

    oracle: NDArray[np.float64]
    ceilings: NDArray[np.float64]
    learning: NDArray[np.float64]
    forgetting: NDArray[np.float64]

    @classmethod
    def random(cls, arms: int, steps: int, rng: np.random.Generator) -> Self:
        """One as the paper draws it: oracle ~ Dir(2), MaxP ~ U[0.5, 1], FI ~ U[0, 0.01] · LI."""
        if arms < 1 or steps < 1:
            raise ValueError(f"arms, steps: expected at least 1, found {arms}, {steps}")
        oracle = rng.dirichlet(np.full(arms, 2.0))
        ceilings = rng.uniform(0.5, 1.0, arms)
        learning = ceilings / (steps * oracle)
        return cls(oracle, ceilings, learning, rng.uniform(0.0, 0.01, arms) * learning)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The arms' names, in order."""
        return tuple(f"arm{k}" for k in range(1, len(self.oracle) + 1))

    def oracle_policy(self) -> Fixed:
        """Return the paper's ORACLE: independent draws from the oracle distribution."""
        return Fixed(dict(zip(self.tasks, self.oracle.tolist(), strict=True)))

    def after(self, scores: NDArray[np.float64], arm: int) -> NDArray[np.float64]:
        """Return the scores after a pull of this arm: first it learns, then all forget."""
        learned = scores.copy()
        learned[arm] = min(learned[arm] + self.learning[arm], self.ceilings[arm])
        return np.maximum(learned - self.forgetting, 0.0)
