"""The multi-task bandit: a task learns when it is drawn and forgets at every step."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from taskmix.policies import Fixed
from taskmix.policies.state import Array


@dataclass(frozen=True, eq=False)
class Environment:
    """A synthetic multi-task training, in which each arm is a task with a score.

    The MTL bandit of Glover and Hokamp (2019, section 4.1). Every score starts at 0. A pull of arm
    k raises its score by LI_k, to at most MaxP_k; then every arm loses FI_k, to at least 0. With
    the learning increment LI_k = MaxP_k / (T · oracle_k), draws from the oracle distribution bring
    each arm to its maximum in T steps on average, apart from forgetting.

    Args:
        oracle: the distribution from which the increments follow, shape `(arms,)`.
        ceilings: the maximum score of each arm, MaxP, shape `(arms,)`.
        learning: the increase of the score by a pull, LI, shape `(arms,)`.
        forgetting: the decrease of the score at every step, FI, shape `(arms,)`.

    >>> from taskmix.rng import stream
    >>> environment = Environment.random(arms=3, steps=1000, rng=stream(1, "environment"))
    >>> environment.tasks
    ('arm1', 'arm2', 'arm3')
    >>> scores = environment.after(np.zeros(3), 0)
    >>> bool(scores[0] > 0), scores[1:].tolist()
    (True, [0.0, 0.0])
    """

    oracle: Array
    ceilings: Array
    learning: Array
    forgetting: Array

    @classmethod
    def random(cls, arms: int, steps: int, rng: np.random.Generator) -> Self:
        """Draw one as in the paper: oracle ~ Dir(2), MaxP ~ U[0.5, 1], FI ~ U[0, 0.01] · LI."""
        if arms < 1 or steps < 1:
            raise ValueError(f"arms, steps: expected at least 1, found {arms}, {steps}")
        oracle = rng.dirichlet(np.full(arms, 2.0))
        ceilings = rng.uniform(0.5, 1.0, arms)
        learning = ceilings / (steps * oracle)
        return cls(oracle, ceilings, learning, rng.uniform(0.0, 0.01, arms) * learning)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the arms."""
        return tuple(f"arm{k}" for k in range(1, len(self.oracle) + 1))

    def oracle_policy(self) -> Fixed:
        """Return the paper's ORACLE: independent draws from the oracle distribution."""
        return Fixed(dict(zip(self.tasks, self.oracle.tolist(), strict=True)))

    def after(self, scores: Array, arm: int) -> Array:
        """Return the scores after a pull of this arm: it learns, then all arms forget."""
        learned = scores.copy()
        learned[arm] = min(learned[arm] + self.learning[arm], self.ceilings[arm])
        return np.maximum(learned - self.forgetting, 0.0)
