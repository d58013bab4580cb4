"""The maximum of an acquisition function over untried points."""

from typing import TYPE_CHECKING

import numpy as np

from taskmix.search.history import StudyHistory
from taskmix.search.process import climb, evaluate
from taskmix.search.space import Array, Space

if TYPE_CHECKING:
    from botorch.acquisition.acquisition import AcquisitionFunction

#: The maximum size of a space that is enumerated.
MAX_ENUMERATED = 30_000
#: In a larger space, the numbers of random candidates, and of candidates near the best point.
_RANDOM_POINTS, _NEAR_POINTS = 4_000, 500
#: The number of candidates that are improved, and of steps to a neighbour.
_STARTS, _MAX_STEPS = 5, 10
#: The largest distance that a new point keeps from pending ones, in the unit cube.
_MAX_GAP = 0.05


def candidates(space: Space, history: StudyHistory, best: Array, rng: np.random.Generator) -> Array:
    """Return the points to compare, without those that were tried unless there are no others."""
    enumerated = space.size is not None and space.size <= MAX_ENUMERATED
    rows = space.unified(space.rows() if enumerated else _sampled(space, best, rng))
    fresh = untried(space, rows, history)
    # In random order, so that ties are broken at random.
    return rng.permutation(fresh if len(fresh) else rows)


def nominee(
    function: "AcquisitionFunction", space: Space, history: StudyHistory, rows: Array
) -> Array:
    """Return the point with the largest value, shape `(axes,)`, from the candidates in `rows`."""
    values = evaluate(function, space.inputs(rows))
    if space.size is not None and space.size <= MAX_ENUMERATED:
        return np.asarray(rows[values.argmax()])
    starts = rows[np.argsort(-values, kind="stable")[:_STARTS]]
    reached = _improved(function, space, history, starts)
    fresh = untried(space, np.concatenate([starts, space.unified(reached)]), history)
    options = fresh if len(fresh) else starts
    return np.asarray(options[evaluate(function, space.inputs(options)).argmax()])


def _improved(
    function: "AcquisitionFunction", space: Space, history: StudyHistory, rows: Array
) -> Array:
    """Improve by gradient, then by steps along the discrete axes, then by gradient again."""
    if space.continuous:
        rows = _polished(function, space, rows)
    if len(space.continuous) == len(space.axes):
        return rows
    rows = np.stack([_walk(function, space, history, row) for row in rows])
    return _polished(function, space, rows) if space.continuous else rows


def _sampled(space: Space, best: Array, rng: np.random.Generator) -> Array:
    """Return random points, and some that share most parameters with the best."""
    far = space.draw(rng, _RANDOM_POINTS)
    near = space.draw(rng, _NEAR_POINTS)
    kept = rng.random(near.shape) > 1 / len(space.axes)
    return np.concatenate([far, np.where(kept, best, near)])


def untried(space: Space, rows: Array, history: StudyHistory) -> Array:
    """Return the rows that were not tried and keep a distance from pending points."""
    fresh = rows[[space.key(row) not in history.taken for row in rows]] if len(rows) else rows
    pending = history.pending
    if not (space.continuous and len(pending) and len(fresh)):
        return fresh
    # The process alone does not keep them apart: where it takes most of the differences for noise,
    # a pending point hardly lowers the uncertainty around it.
    gap = min(_MAX_GAP, 1 / (4 * (len(pending) + 1)))
    distances = np.abs(space.inputs(fresh)[:, None] - space.inputs(pending)[None]).max(axis=2)
    apart = fresh[distances.min(axis=1) >= gap]
    return apart if len(apart) else fresh


def _polished(function: "AcquisitionFunction", space: Space, rows: Array) -> Array:
    reached = climb(function, space.inputs(rows), space.continuous)
    moved = [space.moved(row, inputs) for row, inputs in zip(rows, reached, strict=True)]
    return np.stack(moved)


def _walk(
    function: "AcquisitionFunction", space: Space, history: StudyHistory, row: Array
) -> Array:
    """Step to the best neighbour until none is better."""
    value = evaluate(function, space.inputs(row[None]))[0]
    for _ in range(_MAX_STEPS):
        around = untried(space, space.neighbours(row), history)
        if len(around) == 0:
            return row
        values = evaluate(function, space.inputs(around))
        if values.max() <= value:
            return row
        row, value = around[values.argmax()], values.max()
    return row
