"""The same scores for a regression, so that it stands beside classifications.

A regression gives no distribution over classes but one number a pass. We take it, as its loss does,
for the mean of a Gaussian of unit variance over the standardised label: the label is looked at with
a resolution of one standard deviation. Then the disagreement of the passes is information in nats,
and ½ log 2, where they disagree as much as labels differ, is the counterpart of log(classes).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.uncertainty.arrays import AnyArray, like, numbers

KNOWS_NOTHING = 0.5 * math.log(2.0)


def gaussian_bald(means: AnyArray) -> AnyArray:
    """Mutual information between each example's label and the model's weights, in nats.

    ½ log(1 + Var), the variance over passes: exact where the passes are Gaussian about their mean,
    an upper bound otherwise, since no distribution of a given variance has more entropy. It is 0
    exactly where all passes agree and, as every information from K passes, at most log K.

    Args:
        means: predicted standardised labels, shape `(passes, examples)`.

    Returns:
        The information in each example, shape `(examples,)`.

    >>> gaussian_bald(np.array([[0.3, 1.0], [0.3, -1.0]])).round(4).tolist()
    [0.0, 0.3466]
    """
    spread = _centred(means)
    information = 0.5 * np.log1p(np.square(spread).mean(axis=0))
    return like(np.minimum(information, math.log(len(spread))), means)


def gaussian_batch_bald(means: Any) -> float:
    """Mutual information between the labels of all examples together and the weights, in nats.

    ½ log det(I + Cov), the covariance over passes; for one example `gaussian_bald`, and bounded
    as it is.

    >>> round(gaussian_batch_bald(np.array([[1.0, 1.0], [-1.0, -1.0]])), 4)
    0.5493
    """
    spread = _centred(means)
    # Of I + Cov, only the passes' own directions have eigenvalues other than 1.
    values = np.linalg.svd(spread, compute_uv=False) ** 2 / len(spread)
    return min(float(0.5 * np.log1p(values).sum()), math.log(len(spread)))


def gaussian_entropy(means: AnyArray, residual: float = 1.0) -> AnyArray:
    """Entropy of each example's predictive distribution above that of unit noise, in nats.

    ½ log(1 + residual + Var). The entropy of a class counts what the passes disagree about and what
    none of them knows; a regression's passes show only the first, so the second, the variance of
    the labels about the predictions, has to be given. Entropy of a density has no zero of its own;
    above unit noise it is 0 for a certain prediction and ½ log 2 for one that knows only how labels
    are spread, as the entropy of a class is 0 and log(classes).

    Args:
        means: predicted standardised labels, shape `(passes, examples)`.
        residual: mean squared error of the predictions in units of the label's variance.

    Returns:
        Entropies, shape `(examples,)`.

    >>> knows_nothing = gaussian_entropy(np.zeros((2, 1)), residual=1.0)
    >>> bool(np.isclose(knows_nothing[0], KNOWS_NOTHING))
    True
    """
    if not residual >= 0:
        raise ValueError(f"residual: expected a variance, found {residual}")
    return like(0.5 * np.log1p(residual + np.square(_centred(means)).mean(axis=0)), means)


def _centred(means: Any) -> NDArray[np.float64]:
    x = numbers(means)
    if x.ndim != 2 or x.shape[0] == 0 or not np.all(np.isfinite(x)):
        raise ValueError(f"expected finite means (passes, examples), found shape {x.shape}")
    x = x - x[0]  # equal passes stay equal to the last bit
    centred: NDArray[np.float64] = x - x.mean(axis=0)
    return centred
