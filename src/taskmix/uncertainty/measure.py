"""The mean uncertainty of a model on a set of examples of a task."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from taskmix.uncertainty.batch_bald import batch_bald, legacy
from taskmix.uncertainty.information import (
    entropies,
    gaussian_bald,
    gaussian_batch_bald,
    gaussian_entropy,
    joined,
    mutual_information,
    numbers,
    passes_of,
)

UncertaintyScore = Literal["bald", "batch_bald", "entropy", "legacy"]
Samples = NDArray[np.float64]

# For groups of this size, joint information is exact and far below its upper bound, where all
# tasks would have similar scores.
GROUP_SIZE = 5
LEGACY_GROUP_SIZE = 128


def check_score(score: str) -> None:
    names = get_args(UncertaintyScore)
    if score not in names:
        raise ValueError(f"score: expected one of {', '.join(names)}, found {score!r}")


def measure(samples: Any, score: UncertaintyScore = "bald", residual: float = 1.0) -> float:
    """Return the mean uncertainty of a task's examples, in nats per example.

    Args:
        samples: the predictions of each pass, shape `(passes, examples, classes)`; with one class,
            the standardised means of a regression.
        score: `bald`, the mean mutual information of single examples; `batch_bald`, the joint one
            of groups of five, divided by five; `entropy`, the entropy of the mean prediction; or
            `legacy`, the score of mini-batches of 128 in the code of Fang and Alqatari (2020).
        residual: the argument of `gaussian_entropy`, for the entropy of a regression.

    >>> round(measure(np.array([[[1.0, 0.0]], [[0.0, 1.0]]])), 4)
    0.6931
    """
    check_score(score)
    x = numbers(samples)
    if x.ndim == 3 and x.shape[-1] == 1:
        return _of_means(x[..., 0], score, residual)
    return _of_distributions(passes_of(x), score)


def measure_batches(
    batches: Iterable[Samples], score: UncertaintyScore = "bald", residual: float = 1.0
) -> float:
    """Return `measure` of all batches together, without keeping them in memory.

    Args:
        batches: the samples of some examples each, as for `measure`.
        score: as for `measure`.
        residual: as for `measure`.

    >>> samples = np.random.default_rng(1).dirichlet([1.0, 1.0], size=(4, 12))
    >>> parts = measure_batches([samples[:, :5], samples[:, 5:]], "batch_bald")
    >>> bool(np.isclose(parts, measure(samples, "batch_bald")))
    True
    """
    size = {"batch_bald": GROUP_SIZE, "legacy": LEGACY_GROUP_SIZE}.get(score, 1)
    total, weight = 0.0, 0
    for block in _whole_groups(batches, size):
        examples = block.shape[1]
        counts = -(-examples // size) if score == "legacy" else examples
        total += counts * measure(block, score, residual)
        weight += counts
    return total / weight if weight else 0.0


def _whole_groups(batches: Iterable[Samples], size: int) -> Iterator[Samples]:
    """Yield the examples of the batches in blocks, all but the last of complete groups."""
    rest: Samples | None = None
    for batch in batches:
        block = batch if rest is None else joined([rest, batch])
        complete = block.shape[1] // size * size
        if complete:
            yield block[:, :complete]
        rest = block[:, complete:] if complete < block.shape[1] else None
    if rest is not None:
        yield rest


def _of_distributions(p: Samples, score: UncertaintyScore) -> float:
    if score == "bald":
        return float(mutual_information(p).mean())
    if score == "entropy":
        return float(entropies(p.mean(axis=0)).mean())
    if score == "batch_bald":
        return _by_groups(p, batch_bald)
    starts = range(0, p.shape[1], LEGACY_GROUP_SIZE)
    return float(np.mean([legacy(p[:, start : start + LEGACY_GROUP_SIZE]) for start in starts]))


def _of_means(means: Samples, score: UncertaintyScore, residual: float) -> float:
    if score == "bald":
        return float(gaussian_bald(means).mean())
    if score == "entropy":
        return float(gaussian_entropy(means, residual).mean())
    if score == "batch_bald":
        return _by_groups(means, gaussian_batch_bald)
    raise ValueError("score: 'legacy' is not defined for a regression, expected another score")


def _by_groups(samples: Samples, joint: Callable[[Samples], float]) -> float:
    examples = int(samples.shape[1])
    starts = range(0, examples, GROUP_SIZE)
    return math.fsum(joint(samples[:, start : start + GROUP_SIZE]) for start in starts) / examples
