"""What a logged step was worth.

A reward is a function of a run's steps, in order, that returns one number a step. The two here
come from the papers; a user's own is any function of that shape.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.journal import Step

Reward = Callable[[Sequence[Step]], NDArray[np.float64]]


def room_left(steps: Sequence[Step]) -> NDArray[np.float64]:
    """Return how much is left to learn of a task that is being learned, from the logged losses.

    Glover and Hokamp (2019), equation 16: r = 1 - exp(-L) if the task's loss L is below the one it
    had when it was last drawn, else 0. A task's first draw counts as improved.

    >>> losses = [0.7, 0.5, 0.6]
    >>> steps = [Step(i, "a", p=0.5, loss=loss) for i, loss in enumerate(losses)]
    >>> room_left(steps).round(3).tolist()
    [0.503, 0.393, 0.0]
    """
    _, actions = np.unique([step.task for step in steps], return_inverse=True)
    return room_left_of(actions, _signal(steps, "loss"))


def room_left_of(actions: NDArray[np.int64], losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """`room_left` for arrays: the task and the loss of each step, both of shape `(steps,)`."""
    order = np.argsort(actions, kind="stable")
    task, loss = actions[order], losses[order]
    improved = np.ones(len(order), dtype=np.bool_)
    improved[1:] = (task[1:] != task[:-1]) | (loss[1:] < loss[:-1])
    rewards = np.empty(len(order))
    # A density can exceed 1, so the loss of a regression can fall below 0: no room is left then.
    rewards[order] = np.where(improved, -np.expm1(-np.maximum(loss, 0.0)), 0.0)
    return rewards


def prediction_gain(steps: Sequence[Step]) -> NDArray[np.float64]:
    """By how much the step lowered the loss on its own batch (Graves and others, 2017)."""
    return _signal(steps, "gain")


def _signal(steps: Sequence[Step], name: str) -> NDArray[np.float64]:
    for step in steps:
        if getattr(step, name) is None:
            raise UserError(
                f"journal, step {step.step}: expected a {name} to compute the reward from, found "
                f"none; was the run made with a policy that measures it?"
            )
    return np.array([getattr(step, name) for step in steps], dtype=np.float64)
