"""The simulation of one policy in one bandit."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.bandit.environment import Environment
from taskmix.policies.base import Policy
from taskmix.policies.signals import DevLosses, DevScore, Draw, Outcome, Uncertainty
from taskmix.policies.state import Array

#: The minimum score, so that the loss -log(score) is finite.
FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class Rollout:
    """The history of one simulation, from which a `Log` can be made.

    Args:
        tasks: the names of the arms.
        actions: the arm pulled at each step, shape `(steps,)`.
        probabilities: the distribution of each draw, shape `(steps, tasks)`.
        losses: the loss of the pulled arm before the pull, with noise, shape `(steps,)`.
        gains: the decrease of the loss without noise, shape `(steps,)`.
        scores: the score of every arm after each step, shape `(steps, tasks)`.
    """

    tasks: tuple[str, ...]
    actions: NDArray[np.int64]
    probabilities: Array
    losses: Array
    gains: Array
    scores: Array

    @property
    def curve(self) -> Array:
        """The mean score of all arms after each step, shape `(steps,)`."""
        return np.asarray(self.scores.mean(axis=1))

    @property
    def final(self) -> float:
        """The mean score of all arms at the end."""
        return float(self.scores[-1].mean())


def simulate(
    policy: Policy,
    environment: Environment,
    steps: int,
    rng: np.random.Generator,
    delay: int = 0,
    noise: float = 0.0,
) -> Rollout:
    """Simulate a training in which a policy chooses the arm of each pull.

    The score of an arm is the likelihood of its batches, so the loss is -log(score). Dev scores
    are scores, and the uncertainty is 1 - score.

    Args:
        policy: the policy.
        environment: the arms.
        steps: the number of pulls.
        rng: the random generator of the draws.
        delay: the number of draws between a draw and its outcome, as by a loader that prefetches.
        noise: the standard deviation of the noise in the loss of a batch; gains and dev
            scores have no noise.

    >>> import taskmix
    >>> from taskmix.rng import stream
    >>> environment = Environment.random(arms=4, steps=200, rng=stream(1, "environment"))
    >>> rollout = simulate(taskmix.Random(environment.tasks), environment, 200, stream(1, "draws"))
    >>> rollout.probabilities.shape, rollout.probabilities[0].tolist()
    ((200, 4), [0.25, 0.25, 0.25, 0.25])
    >>> 0.3 < rollout.final < 1
    True
    """
    if policy.tasks != environment.tasks:
        raise ValueError(f"policy: expected the tasks {environment.tasks}, found {policy.tasks}")
    arms = len(environment.tasks)
    history = Rollout(
        environment.tasks,
        actions=np.empty(steps, dtype=np.int64),
        probabilities=np.empty((steps, arms)),
        losses=np.empty(steps),
        gains=np.empty(steps),
        scores=np.empty((steps, arms)),
    )
    scores = np.zeros(arms)
    ahead: deque[Draw] = deque()
    for step in range(steps):
        while len(ahead) <= min(delay, steps - 1 - step):
            ahead.append(policy.ask(rng))
        draw = ahead.popleft()
        before, scores = scores, environment.after(scores, draw.index)
        error = noise * rng.standard_normal() if noise else 0.0
        outcome = _outcome(policy, draw, before, scores, error)
        policy.tell(outcome)
        history.actions[step] = draw.index
        history.probabilities[step] = draw.probabilities
        history.losses[step] = outcome.loss
        history.gains[step] = outcome.gain
        history.scores[step] = scores
    return history


def _outcome(policy: Policy, draw: Draw, before: Array, after: Array, error: float) -> Outcome:
    loss = _nll(before[draw.index])
    measured: dict[str, Any] = {}
    for signal in policy.due(draw):
        match signal:
            case DevScore(task=task):
                measured["score"] = float(after[policy.tasks.index(task)])
            case Uncertainty():
                values = (1 - after).tolist()
                measured["uncertainty"] = dict(zip(policy.tasks, values, strict=True))
            case DevLosses():
                values = map(_nll, after)
                measured["dev_losses"] = dict(zip(policy.tasks, values, strict=True))
    gain = loss - _nll(after[draw.index])
    return Outcome(draw, loss + error, gain, **measured)


def _nll(score: float) -> float:
    return -math.log(max(score, FLOOR))
