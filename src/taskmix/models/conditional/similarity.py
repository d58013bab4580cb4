"""Covariance similarity of the inputs of tasks (Wu et al. 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from taskmix.errors import UserError

SHARE = 0.99
"""The share of a covariance that its low-rank approximation holds, in the paper."""


def covariance_similarity(first: Tensor, second: Tensor, share: float = SHARE) -> float:
    """Return the covariance similarity of two tasks: Pilault et al. (2021), equation 7.

    With U D Uᵀ the best approximation of XᵀX (not centred) of the smallest rank that holds the
    share of its singular values' sum, it is

        ‖(U_i D_i^½)ᵀ U_j D_j^½‖ / (‖U_i D_i^½‖ ‖U_j D_j^½‖)      (Frobenius norms).

    It is 0 for inputs in orthogonal subspaces. A task's similarity to itself is ‖D‖/tr D, which
    is below 1: 1/√r for r directions of equal size.

    Args:
        first: a task's inputs, shape `(rows, width)`: in the paper the inputs of the first layer.
        second: another task's, shape `(rows, width)`; the numbers of rows may differ.
        share: of each covariance to keep.

    >>> x = torch.eye(4)
    >>> covariance_similarity(x, x), covariance_similarity(x[:2], x[2:])
    (0.5, 0.0)
    """
    return _similarity(_root(first, share), _root(second, share))


def covariance_similarities(inputs: Sequence[Tensor], share: float = SHARE) -> Tensor:
    """Return the similarities of all pairs of tasks, shape `(tasks, tasks)`.

    Args:
        inputs: each task's inputs, shape `(rows, width)`.
        share: of each covariance to keep.
    """
    roots = [_root(x, share) for x in inputs]
    table = [[_similarity(one, other) for other in roots] for one in roots]
    return torch.tensor(table, dtype=torch.float64)


def mean_similarities(similarities: Tensor) -> Tensor:
    """Return each task's mean similarity to the others: CovSim_i of equation 7, shape `(tasks,)`.

    Args:
        similarities: the output of `covariance_similarities` for at least two tasks.
    """
    if len(similarities) < 2:
        raise UserError(f"similarities: expected at least 2 tasks, found {len(similarities)}")
    others = similarities.sum(1) - similarities.diagonal()
    return others / (len(similarities) - 1)


def _root(x: Tensor, share: float) -> Tensor:
    """U D^½ of XᵀX, shape `(width, rank)`."""
    if x.ndim != 2 or not x.shape[0]:
        raise UserError(f"inputs: expected shape (rows, width), found {tuple(x.shape)}")
    if not 0 < share <= 1:
        raise UserError(f"share: expected a number above 0 and up to 1, found {share}")
    x = x.detach().double()
    rows, width = x.shape
    # The smaller of XXᵀ and XᵀX has all of D: X = W D^½ Uᵀ, so that XᵀW is U D^½.
    if rows < width:
        values, vectors = torch.linalg.eigh(x @ x.T)
        root: Tensor = x.T @ vectors
    else:
        values, vectors = torch.linalg.eigh(x.T @ x)
        root = vectors * values.clamp(min=0).sqrt()
    held = values.clamp(min=0).flip(0).cumsum(0)
    if not held[-1] > 0:
        raise UserError("inputs: expected some that are not zero, found only zeros")
    # With a share of 1 the last of the sums may miss it by a rounding error.
    rank = 1 + int((held < held[-1] * share * (1 - 1e-12)).sum())
    return root.flip(1)[:, :rank]


def _similarity(one: Tensor, other: Tensor) -> float:
    if len(one) != len(other):
        raise UserError(f"inputs: expected one width, found {len(one)} and {len(other)}")
    norm = torch.linalg.matrix_norm
    return float(norm(one.T @ other) / (norm(one) * norm(other)))
