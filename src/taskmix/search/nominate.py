"""The point at which an acquisition function is largest, among those that nobody has tried."""

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from taskmix.search.axes import Array
from taskmix.search.process import climb, evaluate
from taskmix.search.space import Key, Space

if TYPE_CHECKING:
    from botorch.acquisition.acquisition import AcquisitionFunction

ENUMERATED = 30_000
_RANDOM = 4_000
_NEAR = 500
_STARTS = 5
_SWEEPS = 10


def candidates(
    space: Space, taken: Collection[Key], best: Array, rng: np.random.Generator
) -> Array:
    """Return the points to compare: all of a small space, else random ones.

    Points that were tried are left out, unless nothing else is left.

    Args:
        space: the points there are.
        taken: the keys of those that were tried.
        best: the best of them, around which some candidates are drawn.
        rng: where random points and the order come from.
    """
    enumerated = space.size is not None and space.size <= ENUMERATED
    rows = space.unified(space.rows() if enumerated else _sampled(space, best, rng))
    fresh = _untaken(space, rows, taken)
    # In random order, so that no corner of the space wins the ties.
    return rng.permutation(fresh if len(fresh) else rows)


def nominee(
    function: "AcquisitionFunction", space: Space, taken: Collection[Key], rows: Array
) -> Array:
    """Return the point with the largest value, shape `(axes,)`.

    A small space was enumerated, and the largest of the candidates is the answer. In a large one
    the best few candidates are improved, by gradient along continuous axes and by trying the
    neighbours along the others.

    Args:
        function: what to maximise.
        space: the points there are.
        taken: the keys of those that were tried.
        rows: the candidates, shape `(candidates, axes)`.
    """
    values = evaluate(function, space.inputs(rows))
    if space.size is not None and space.size <= ENUMERATED:
        return np.asarray(rows[values.argmax()])
    starts = rows[np.argsort(-values, kind="stable")[:_STARTS]]
    reached = _improved(function, space, taken, starts)
    fresh = _untaken(space, np.concatenate([starts, space.unified(reached)]), taken)
    options = fresh if len(fresh) else starts
    return np.asarray(options[evaluate(function, space.inputs(options)).argmax()])


def _improved(
    function: "AcquisitionFunction", space: Space, taken: Collection[Key], rows: Array
) -> Array:
    """Return where gradients lead, then steps along the other axes, then gradients again."""
    if space.continuous:
        rows = _polished(function, space, rows)
    if len(space.continuous) == len(space.axes):
        return rows
    rows = np.stack([_walk(function, space, taken, row) for row in rows])
    return _polished(function, space, rows) if space.continuous else rows


def _sampled(space: Space, best: Array, rng: np.random.Generator) -> Array:
    """Return random points, and some that share all but a few parameters with the best."""
    far = space.draw(rng, _RANDOM)
    near = space.draw(rng, _NEAR)
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
    """Return where steps to the best neighbour end."""
    value = evaluate(function, space.inputs(row[None]))[0]
    for _ in range(_SWEEPS):
        around = _untaken(space, space.neighbours(row), taken)
        if len(around) == 0:
            return row
        values = evaluate(function, space.inputs(around))
        if values.max() <= value:
            return row
        row, value = around[values.argmax()], values.max()
    return row
