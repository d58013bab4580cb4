"""One number for a task: how unsure the model is on a set of its examples."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from taskmix.uncertainty.arrays import joined, numbers, passes_of
from taskmix.uncertainty.bald import mutual_information
from taskmix.uncertainty.batch_bald import batch_bald
from taskmix.uncertainty.entropy import entropies
from taskmix.uncertainty.gaussian import gaussian_bald, gaussian_batch_bald, gaussian_entropy
from taskmix.uncertainty.legacy import legacy

Score = Literal["bald", "batch_bald", "entropy", "legacy"]
Samples = NDArray[np.float64]

# Joint information is exact for groups of this size and far from its ceiling, where all tasks
# would look alike.
GROUP = 5
LEGACY_GROUP = 128


def measure(samples: Any, score: Score = "bald", residual: float = 1.0) -> float:
    """Return the mean uncertainty of a task's examples, in nats an example.

    Args:
        samples: one prediction a pass and example, shape `(passes, examples, classes)`; one class
            means a regression's standardised mean.
        score: `bald` is the mean information of single examples; `batch_bald` the joint one of
            groups of five, over five; `entropy` the entropy of the mean prediction; `legacy` what
            the code of Fang and Alqatari (2020) computed from mini-batches of 128.
        residual: the `gaussian_entropy` of a regression needs it; no other score does.

    >>> round(measure(np.array([[[1.0, 0.0]], [[0.0, 1.0]]])), 4)
    0.6931
    """
    if score not in get_args(Score):
        raise ValueError(f"score: expected one of {', '.join(get_args(Score))}, found {score!r}")
    x = numbers(samples)
    if x.ndim == 3 and x.shape[-1] == 1:
        return _of_means(x[..., 0], score, residual)
    return _of_distributions(passes_of(x), score)


def measure_batches(
    batches: Iterable[Samples], score: Score = "bald", residual: float = 1.0
) -> float:
    """Return the same as `measure` of all batches end to end, without keeping them.

    Args:
        batches: samples as `measure` takes them, each with some of the examples.
        score: as for `measure`.
        residual: as for `measure`.

    >>> samples = np.random.default_rng(1).dirichlet([1.0, 1.0], size=(4, 12))
    >>> parts = measure_batches([samples[:, :5], samples[:, 5:]], "batch_bald")
    >>> bool(np.isclose(parts, measure(samples, "batch_bald")))
    True
    """
    size = {"batch_bald": GROUP, "legacy": LEGACY_GROUP}.get(score, 1)
    total, weight = 0.0, 0
    for block in _whole_groups(batches, size):
        examples = block.shape[1]
        counts = -(-examples // size) if score == "legacy" else examples
        total += counts * measure(block, score, residual)
        weight += counts
    return total / weight if weight else 0.0


def _whole_groups(batches: Iterable[Samples], size: int) -> Iterator[Samples]:
    """Yield the examples of the batches in blocks that are cut between groups of this size."""
    rest: Samples | None = None
    for batch in batches:
        block = batch if rest is None else joined([rest, batch])
        whole = block.shape[1] // size * size
        if whole:
            yield block[:, :whole]
        rest = block[:, whole:] if whole < block.shape[1] else None
    if rest is not None:
        yield rest


def _of_distributions(p: Samples, score: Score) -> float:
    if score == "bald":
        return float(mutual_information(p).mean())
    if score == "entropy":
        return float(entropies(p.mean(axis=0)).mean())
    if score == "batch_bald":
        return _by_groups(p, batch_bald)
    groups = [p[:, start : start + LEGACY_GROUP] for start in range(0, p.shape[1], LEGACY_GROUP)]
    return float(np.mean([legacy(group) for group in groups]))


def _of_means(means: Samples, score: Score, residual: float) -> float:
    if score == "bald":
        return float(gaussian_bald(means).mean())
    if score == "entropy":
        return float(gaussian_entropy(means, residual).mean())
    if score == "batch_bald":
        return _by_groups(means, gaussian_batch_bald)
    raise ValueError("score: 'legacy' is not defined for a regression, expected another score")


def _by_groups(samples: Samples, joint: Callable[[Samples], float]) -> float:
    examples = int(samples.shape[1])
    starts = range(0, examples, GROUP)
    return math.fsum(joint(samples[:, start : start + GROUP]) for start in starts) / examples
