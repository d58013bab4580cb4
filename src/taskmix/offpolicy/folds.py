"""Parts of a sample that know nothing of each other."""

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream


def folds_of(decisions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the fold of each step, 0 to `count` - 1, the same for all steps of a decision.

    Of every `count` decisions in a row each fold gets one, so that all see the whole course of the
    run; which one is left to chance, so that no fold keeps step with a policy that goes in turns.
    The same number of decisions is always cut in the same way.

    Args:
        decisions: the number of each step's decision, shape `(steps,)`.
        count: how many folds.

    >>> folds_of(np.array([0, 0, 1, 2, 3]), 2).tolist()
    [0, 0, 1, 1, 0]
    """
    names, number = np.unique(decisions, return_inverse=True)
    turns = -(-len(names) // count)
    ranks = stream(0, "folds", count, len(names)).random((turns, count)).argsort(axis=1)
    folds: NDArray[np.int64] = ranks.ravel()[number]
    return folds
