"""Bayesian active learning by disagreement: what one answer would tell about the model."""

import math

import numpy as np
from numpy.typing import NDArray

from taskmix.uncertainty.arrays import AnyArray, like, passes_of


def bald(samples: AnyArray) -> AnyArray:
    """Mutual information between each example's label and the model's weights, in nats.

    Houlsby et al. (2011): I(y; w) = H(E p) - E H(p), the expectations over passes. Fang and
    Alqatari (2020) print the second term without its 1/K. It is 0 exactly where all passes agree
    and at most log(passes) and log(classes).

    Args:
        samples: one distribution a pass and example, shape `(passes, examples, classes)`.

    Returns:
        The information in each example, shape `(examples,)`.

    >>> agree, differ = [[0.9, 0.1], [0.9, 0.1]], [[1.0, 0.0], [0.0, 1.0]]
    >>> bald(np.array([agree, differ]).swapaxes(0, 1)).round(4).tolist()
    [0.0, 0.6931]
    """
    return like(mutual_information(passes_of(samples)), samples)


def mutual_information(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Information between outcome and pass: `(passes, ..., outcomes)` to `(...)`.

    Written as the mean divergence of the passes from their mixture, E Σ p log(p / E p): every
    term is exactly 0 where the passes agree, which a difference of two entropies is not.
    """
    # Taken from the first pass on, the mixture of equal passes is that pass to the last bit.
    mixture = p[0] + (p - p[0]).mean(axis=0)
    ratio = np.divide(p, mixture, out=np.ones_like(p), where=p > 0)
    information: NDArray[np.float64] = np.sum(p * np.log(ratio), axis=-1).mean(axis=0)
    ceiling = math.log(min(p.shape[0], p.shape[-1]))
    return np.clip(information, 0.0, ceiling)
