"""Entropy and BALD of classifications and regressions, for arrays and tensors."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

AnyArray = TypeVar("AnyArray", NDArray[Any], "Tensor")

#: The largest error of a softmax's sum in half precision.
SUM_TOLERANCE = 1e-2


def _is_tensor(x: object) -> bool:
    # Without an import of torch, which takes seconds.
    return type(x).__module__.split(".")[0] == "torch" and hasattr(x, "detach")


def numbers(x: Any) -> NDArray[np.float64]:
    """Return an array or a tensor as an array in double precision."""
    if _is_tensor(x):
        x = x.detach().double().cpu().numpy()
    return np.asarray(x, dtype=np.float64)


def like(result: NDArray[np.float64], x: AnyArray) -> AnyArray:
    """Return the result as a tensor with the dtype and device of `x` if that is a tensor."""
    if _is_tensor(x):
        return cast(AnyArray, cast(Any, x).new_tensor(result))
    return cast(AnyArray, result)


def distributions(x: Any) -> NDArray[np.float64]:
    """Return probabilities over the last axis, normalised in double precision."""
    p = numbers(x)
    if p.ndim == 0 or p.shape[-1] == 0:
        raise ValueError(f"expected probabilities over a last axis, found shape {p.shape}")
    total = p.sum(axis=-1, keepdims=True)
    if not np.all(np.abs(total - 1) <= SUM_TOLERANCE) or np.any(p < 0):
        raise ValueError("expected probabilities, none below 0, that sum to 1 over the last axis")
    return cast(NDArray[np.float64], p / total)


def passes_of(samples: Any) -> NDArray[np.float64]:
    """Return valid predictive distributions, shape `(passes, examples, classes)`."""
    p = distributions(samples)
    if p.ndim != 3 or 0 in p.shape[:2]:
        raise ValueError(f"expected samples (passes, examples, classes), found shape {p.shape}")
    return p


def joined(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Concatenate samples along the examples; classes that a part lacks get probability 0."""
    classes = max(part.shape[-1] for part in parts)
    pads = [((0, 0), (0, 0), (0, classes - part.shape[-1])) for part in parts]
    return np.concatenate(list(map(np.pad, parts, pads)), axis=1)


def entropy(p: AnyArray) -> AnyArray:
    """Return the Shannon entropy over the last axis in nats, H = -Σ p log p, shape `(...)`.

    Args:
        p: probabilities, shape `(..., classes)`; an array or a tensor.

    >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
    [0.0, 0.6931]
    """
    return like(entropies(distributions(p)), p)


def entropies(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """`entropy` without checks."""
    logs = np.log(np.where(p > 0, p, 1.0))
    # Subtracted from 0 instead of negated, so that the entropy of certainty is 0, not -0.
    total: NDArray[np.float64] = 0.0 - np.sum(p * logs, axis=-1)
    return np.clip(total, 0.0, math.log(p.shape[-1]))


def bald(samples: AnyArray) -> AnyArray:
    """Return the mutual information of each example's label and the weights, in nats.

    Houlsby et al. (2011): I(y; w) = H(E p) - E H(p), with expectations over passes, shape
    `(examples,)`. Fang and Alqatari (2020) print the second term without its 1/K. It is exactly 0
    if all passes agree, and at most log(passes) and log(classes).

    Args:
        samples: the distributions of each pass, shape `(passes, examples, classes)`.

    >>> agree, differ = [[0.9, 0.1], [0.9, 0.1]], [[1.0, 0.0], [0.0, 1.0]]
    >>> bald(np.array([agree, differ]).swapaxes(0, 1)).round(4).tolist()
    [0.0, 0.6931]
    """
    return like(mutual_information(passes_of(samples)), samples)


def mutual_information(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mutual information of outcome and pass: `(passes, ..., outcomes)` to `(...)`."""
    # As the mean divergence of the passes from their mixture, E Σ p log(p / E p), it is exactly 0
    # if the passes agree, unlike a difference of entropies. Relative to the first pass, the mixture
    # of equal passes has no rounding error.
    mixture = p[0] + (p - p[0]).mean(axis=0)
    ratio = np.divide(p, mixture, out=np.ones_like(p), where=p > 0)
    information: NDArray[np.float64] = np.sum(p * np.log(ratio), axis=-1).mean(axis=0)
    return np.clip(information, 0.0, math.log(min(p.shape[0], p.shape[-1])))


# The scores of a regression. Its prediction is the mean of a Gaussian with unit variance over the
# standardised label, so the disagreement of the passes is information in nats.


def gaussian_bald(means: AnyArray) -> AnyArray:
    """Return the mutual information of each example's label and the weights, in nats.

    ½ log(1 + Var), with the variance over passes, shape `(examples,)`. It is exact if the passes
    are Gaussian, otherwise an upper bound. It is exactly 0 if all passes agree, and at most
    log(passes).

    Args:
        means: the predicted standardised labels, shape `(passes, examples)`.

    >>> gaussian_bald(np.array([[0.3, 1.0], [0.3, -1.0]])).round(4).tolist()
    [0.0, 0.3466]
    """
    spread = _centred(means)
    information = 0.5 * np.log1p(np.square(spread).mean(axis=0))
    return like(np.minimum(information, math.log(len(spread))), means)


def gaussian_batch_bald(means: Any) -> float:
    """Return the mutual information of the labels of all examples and the weights, in nats.

    ½ log det(I + Cov), with the covariance over passes, and at most log(passes).

    Args:
        means: the predicted standardised labels, shape `(passes, examples)`.

    >>> round(gaussian_batch_bald(np.array([[1.0, 1.0], [-1.0, -1.0]])), 4)
    0.5493
    """
    spread = _centred(means)
    # I + Cov has eigenvalues other than 1 only in the span of the passes.
    values = np.linalg.svd(spread, compute_uv=False) ** 2 / len(spread)
    return min(float(0.5 * np.log1p(values).sum()), math.log(len(spread)))


def gaussian_entropy(means: AnyArray, residual: float = 1.0) -> AnyArray:
    """Return the entropy of each example's prediction, relative to unit noise, in nats.

    ½ log(1 + residual + Var), shape `(examples,)`. The passes of a regression show only their
    disagreement Var; the noise of the labels is an argument. Like the entropy over classes, it is 0
    for a certain prediction; for an uninformed one it is ½ log 2, the counterpart of log(classes).

    Args:
        means: the predicted standardised labels, shape `(passes, examples)`.
        residual: the mean squared error of the predictions, in units of the label's variance.

    >>> gaussian_entropy(np.zeros((2, 1)), residual=1.0).round(4).tolist()
    [0.3466]
    """
    if not residual >= 0:
        raise ValueError(f"residual: expected a variance, found {residual}")
    return like(0.5 * np.log1p(residual + np.square(_centred(means)).mean(axis=0)), means)


def _centred(means: Any) -> NDArray[np.float64]:
    x = numbers(means)
    if x.ndim != 2 or x.shape[0] == 0 or not np.all(np.isfinite(x)):
        raise ValueError(f"expected finite means (passes, examples), found shape {x.shape}")
    x = x - x[0]  # so that equal passes have no rounding error
    centred: NDArray[np.float64] = x - x.mean(axis=0)
    return centred
