"""The signals of rollouts, from the rewards of their completions."""

import math
from collections.abc import Sequence

from taskmix.errors import UserError
from taskmix.policies import POLICIES, Policy, Rewards


def check_policy(policy: Policy) -> None:
    """Raise if the policy learns from a measurement that rollouts do not have."""
    missing = sorted(type(signal).__name__ for signal in policy.needs - {Rewards()})
    if missing:
        names = sorted(cls.name for cls in POLICIES if cls.needs == {Rewards()})
        raise UserError(
            f"policy {policy.name}: expected one that learns from rewards ({', '.join(names)}, or "
            f"progress with of='reward') or one that does not learn, found one that needs "
            f"{', '.join(missing)}"
        )


def signals_of(
    rewards: Sequence[float], advantages: Sequence[float], group: int
) -> dict[str, float]:
    """Return the measurements of `taskmix.Rewards`.

    Args:
        rewards: of the completions of a draw, those of each prompt together; NaN without a reward.
        advantages: of the same completions.
        group: the completions of each prompt.

    >>> signals_of([1.0, 0.0, 1.0, 1.0], [0.7, -0.7, 0.0, 0.0], group=2)
    {'reward': 0.75, 'spread': 0.3535533905932738, 'mute': 0.5, 'advantage': 0.35}
    """
    groups = _groups(rewards, group)
    scored = [reward for members in groups for reward in members]
    return {
        "reward": sum(scored) / len(scored),
        "spread": sum(map(_deviation, groups)) / len(groups),
        "mute": sum(not members or max(members) == min(members) for members in groups)
        / len(groups),
        "advantage": sum(map(abs, advantages)) / len(advantages),
    }


def prompt_rewards(rewards: Sequence[float], group: int) -> list[float | None]:
    """Return the mean reward of each prompt, None where no completion has a reward.

    >>> prompt_rewards([1.0, 0.0, math.nan, math.nan], group=2)
    [0.5, None]
    """
    groups = _groups(rewards, group)
    return [sum(members) / len(members) if members else None for members in groups]


def _groups(rewards: Sequence[float], group: int) -> list[list[float]]:
    starts = range(0, len(rewards), group)
    return [[r for r in rewards[i : i + group] if not math.isnan(r)] for i in starts]


def _deviation(values: Sequence[float]) -> float:
    """Return the unbiased standard deviation, 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
