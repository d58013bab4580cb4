"""Shannon entropy."""

import math

import numpy as np
from numpy.typing import NDArray

from taskmix.uncertainty.arrays import AnyArray, distributions, like


def entropy(p: AnyArray) -> AnyArray:
    """Shannon entropy over the last axis, in nats: H = -Σ p log p, where 0 log 0 = 0.

    It lies between 0, where one class is certain, and the logarithm of the number of classes.

    Args:
        p: probabilities, shape `(..., classes)`.

    Returns:
        Entropies, shape `(...)`.

    >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
    [0.0, 0.6931]
    """
    return like(entropies(distributions(p)), p)


def entropies(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """`entropy` of an array that is known to hold distributions."""
    logs = np.log(np.where(p > 0, p, 1.0))
    # Subtracted from 0 and not negated: certainty has the entropy 0, not -0.
    total: NDArray[np.float64] = 0.0 - np.sum(p * logs, axis=-1)
    return np.clip(total, 0.0, math.log(p.shape[-1]))
