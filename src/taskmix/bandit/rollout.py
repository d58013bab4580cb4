"""One policy in one bandit, and what it left behind."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskmix.bandit.environment import Environment
from taskmix.policies.base import Draw, Outcome, Policy
from taskmix.policies.signals import DevLosses, DevScore, Skill, Uncertainty

#: A score below this counts as this when its negative log-likelihood is taken.
FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class Rollout:
    """The history of one simulated training: all that an off-policy log is made of.

    Args:
        tasks: the arms' names.
        actions: the arm pulled at each step, shape `(steps,)`.
        probabilities: the distribution of each draw, shape `(steps, tasks)`.
        losses: the pulled arm's negative log-likelihood before the pull, with its noise, shape
            `(steps,)`.
        gains: by how much the step lowered it, shape `(steps,)`.
        scores: every arm's score after each step, shape `(steps, tasks)`.
    """

    tasks: tuple[str, ...]
    actions: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    losses: NDArray[np.float64]
    gains: NDArray[np.float64]
    scores: NDArray[np.float64]

    @property
    def curve(self) -> NDArray[np.float64]:
        """The mean score of all arms after each step, shape `(steps,)`."""
        curve: NDArray[np.float64] = self.scores.mean(axis=1)
        return curve

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
    """Let a policy spend `steps` pulls, by ask and tell, as it would in a training.

    An arm's score stands for the likelihood of a batch of its task, so the loss is -log(score).
    A dev score is the score of the arm it names, a skill that of the arm pulled, for guessing earns
    nothing; an uncertainty is 1 - score.

    Args:
        policy: says which arm is pulled.
        environment: the arms.
        steps: how many pulls.
        rng: where the draws come from.
        delay: how many draws are made between a draw and its outcome, as by a loader that looks
            ahead. The arms are pulled in the order of the draws.
        noise: the standard deviation of what luck adds to the loss of a batch. The gain, which is
            of one batch before and after, is without it, and so are dev scores and skills.

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
        luck = noise * rng.standard_normal() if noise else 0.0
        outcome = _outcome(policy, draw, before, scores, luck)
        policy.tell(outcome)
        history.actions[step] = draw.index
        history.probabilities[step] = draw.probabilities
        history.losses[step] = outcome.loss
        history.gains[step] = outcome.gain
        history.scores[step] = scores
    return history


def _outcome(
    policy: Policy,
    draw: Draw,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    luck: float,
) -> Outcome:
    loss = _nll(before[draw.index])
    score, uncertainty, losses, skill = None, None, None, None
    for signal in policy.due(draw):
        if isinstance(signal, DevScore):
            score = float(after[policy.tasks.index(signal.task)])
        elif isinstance(signal, Skill):
            skill = float(after[draw.index])
        elif isinstance(signal, Uncertainty):
            uncertainty = dict(zip(policy.tasks, (1 - after).tolist(), strict=True))
        elif isinstance(signal, DevLosses):
            losses = {task: _nll(each) for task, each in zip(policy.tasks, after, strict=True)}
    gain = loss - _nll(after[draw.index])
    return Outcome(draw, loss + luck, gain, score, uncertainty, dev_losses=losses, skill=skill)


def _nll(score: float) -> float:
    return -math.log(max(score, FLOOR))
