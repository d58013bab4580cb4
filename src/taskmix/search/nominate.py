"""The maximum of an acquisition function over untried points."""

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from taskmix.search.process import climb, evaluate
from taskmix.search.space import Array, Key, Space

if TYPE_CHECKING:
    from botorch.acquisition.acquisition import AcquisitionFunction

#: The maximum size of a space that is enumerated.
MAX_ENUMERATED = 30_000
#: In a larger space, the numbers of random candidates, and of candidates near the best point.
_RANDOM_POINTS, _NEAR_POINTS = 4_000, 500
#: The number of candidates that are improved, and of steps to a neighbour.
_STARTS, _MAX_STEPS = 5, 10


def candidates(
    space: Space, taken: Collection[Key], best: Array, rng: np.random.Generator
) -> Array:
    """Return the points to compare, without those that were tried unless there are no others."""
    enumerated = space.size is not None and space.size <= MAX_ENUMERATED
    rows = space.unified(space.rows() if enumerated else _sampled(space, best, rng))
    fresh = _untaken(space, rows, taken)
    # In random order, so that ties are broken at random.
    return rng.permutation(fresh if len(fresh) else rows)


def nominee(
    function: "AcquisitionFunction", space: Space, taken: Collection[Key], rows: Array
) -> Array:
    """Return the point with the largest value, shape `(axes,)`, from the candidates in `rows`."""
    values = evaluate(function, space.inputs(rows))
    if space.size is not None and space.size <= MAX_ENUMERATED:
        return np.asarray(rows[values.argmax()])
    starts = rows[np.argsort(-values, kind="stable")[:_STARTS]]
    reached = _improved(function, space, taken, starts)
    fresh = _untaken(space, np.concatenate([starts, space.unified(reached)]), taken)
    options = fresh if len(fresh) else starts
    return np.asarray(options[evaluate(function, space.inputs(options)).argmax()])


def _improved(
    function: "AcquisitionFunction", space: Space, taken: Collection[Key], rows: Array
) -> Array:
    """Improve by gradient, then by steps along the discrete axes, then by gradient again."""
    if space.continuous:
        rows = _polished(function, space, rows)
    if len(space.continuous) == len(space.axes):
        return rows
    rows = np.stack([_walk(function, space, taken, row) for row in rows])
    return _polished(function, space, rows) if space.continuous else rows


def _sampled(space: Space, best: Array, rng: np.random.Generator) -> Array:
    """Return random points, and some that share most parameters with the best."""
    far = space.draw(rng, _RANDOM_POINTS)
    near = space.draw(rng, _NEAR_POINTS)
    kept = rng.random(near.shape) > 1 / len(space.axes)
    return np.concatenate([far, np.where(kept, best, near)])


def _untaken(space: Space, rows: Array, taken: Collection[Key]) -> Array:
    return rows[[space.key(row) not in taken for row in rows]] if len(rows) else rows


def _polished(function: "AcquisitionFunction", space: Space, rows: Array) -> Array:
    reached = climb(function, space.inputs(rows), space.continuous)
    moved = [space.moved(row, inputs) for row, inputs in zip(rows, reached, strict=True)]
    return np.stack(moved)


def _walk(
    function: "AcquisitionFunction", space: Space, taken: Collection[Key], row: Array
) -> Array:
    """Step to the best neighbour until none is better."""
    value = evaluate(function, space.inputs(row[None]))[0]
    for _ in range(_MAX_STEPS):
        around = _untaken(space, space.neighbours(row), taken)
        if len(around) == 0:
            return row
        values = evaluate(function, space.inputs(around))
        if values.max() <= value:
            return row
        row, value = around[values.argmax()], values.max()
    return row
