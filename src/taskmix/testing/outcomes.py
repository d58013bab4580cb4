"""Outcomes without a training: what a policy would be told, and what it should never be told."""

import numpy as np

from taskmix.policies.base import Draw, Outcome, Policy
from taskmix.policies.signals import Alignment, DevLosses, DevScore, Gain, Skill, Uncertainty

_NO_NUMBERS = (None, float("nan"), float("inf"), float("-inf"), 1.7e308, -1.7e308, -1.0, 0.0)


def outcome_of(policy: Policy, draw: Draw, rng: np.random.Generator) -> Outcome:
    """Return a plausible outcome of a draw, with the signals that the policy has due.

    >>> import taskmix
    >>> rng = np.random.default_rng(1)
    >>> policy = taskmix.Random(["a", "b"])
    >>> outcome_of(policy, policy.ask(rng), rng).gain is None
    True
    """
    due = {type(signal) for signal in policy.due(draw)}
    aligned = Alignment in due
    return Outcome(
        draw,
        loss=float(rng.exponential()),
        gain=float(rng.normal(0.02, 0.1)) if Gain in due else None,
        score=float(rng.random()) if DevScore in due else None,
        uncertainty=(
            {task: float(rng.random()) for task in policy.tasks} if Uncertainty in due else None
        ),
        dev_losses=(
            {task: float(rng.exponential()) for task in policy.tasks} if DevLosses in due else None
        ),
        alignment=float(rng.normal(0.1, 0.2)) if aligned else None,
        gradient=float(rng.exponential()) if aligned else None,
        skill=float(rng.uniform(-0.1, 1)) if Skill in due else None,
    )


def garbage(policy: Policy, draw: Draw, rng: np.random.Generator) -> Outcome:
    """Return an outcome that no policy should believe: absent, infinite or not numbers at all."""
    loss, gain, score, doubt = (_NO_NUMBERS[i] for i in rng.integers(len(_NO_NUMBERS), size=4))
    task = str(rng.choice([*policy.tasks, "no such task"]))
    uncertainty = {} if doubt is None else {task: doubt}
    by_task = dict.fromkeys(policy.tasks, doubt or 0.0) if rng.random() < 0.5 else uncertainty
    return Outcome(
        draw,
        loss,
        gain,
        score,
        uncertainty if rng.random() < 0.8 else None,
        tokens=int(rng.choice([-5, 0, 2**62])),
        dev_losses=by_task,
        alignment=gain,
        gradient=score,
        skill=doubt,
    )
