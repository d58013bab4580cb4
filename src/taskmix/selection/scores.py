"""Uncertainties of single examples on one scale, whatever their task."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.uncertainty import bald, entropy, gaussian_bald, gaussian_entropy
from taskmix.uncertainty.arrays import numbers
from taskmix.uncertainty.gaussian import KNOWS_NOTHING

Score = Literal["entropy", "bald"]


def example_scores(
    samples: Any, score: Score = "entropy", residual: float = 1.0
) -> NDArray[np.float64]:
    """Return how uncertain each example is, from 0 for certainty to 1 for knowing nothing.

    Classes are scored by H / H', Pilault et al. (2021), equation 4, where H' = log(classes); BALD
    in place of H leaves what no training can remove out of account. A regression is scored by the
    counterparts of both, `gaussian_entropy` and `gaussian_bald`, over theirs of H', ½ log 2.

    The classes of an example are those that it can have: where examples differ in their number, as
    the tokens of a context or the choices of a row do, all others have a probability of 0 in every
    pass. So padding does not change a score.

    Args:
        samples: one prediction a pass and example, shape `(passes, examples, classes)`; one class
            means a regression's standardised mean.
        score: `entropy` of the mean prediction, or `bald`, the information about the weights, which
            needs several passes.
        residual: a regression's mean squared error in units of the label's variance, for `entropy`.

    Returns:
        Scores, shape `(examples,)`.

    >>> example_scores(np.array([[[0.5, 0.5], [1.0, 0.0]]])).tolist()
    [1.0, 0.0]
    >>> example_scores(np.array([[[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]])).round(3).tolist()
    [1.0, 0.937]
    >>> example_scores(np.array([[[0.3]], [[0.3]]]), residual=1.0).round(9).tolist()
    [1.0]
    """
    x = numbers(samples)
    if x.shape[-1] == 1:
        means = x[..., 0]
        bits = gaussian_bald(means) if score == "bald" else gaussian_entropy(means, residual)
        return np.minimum(bits / KNOWS_NOTHING, 1.0)
    bits = bald(x) if score == "bald" else entropy(x.mean(axis=0))
    classes = (x > 0).any(axis=0).sum(axis=-1)
    # An example with a single class is certain: its score of 0 needs no other divisor.
    return np.asarray(bits / np.log(np.maximum(classes, 2)))
