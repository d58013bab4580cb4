"""A policy as the environment mix of prime-rl, or of any trainer that reports groups."""

import math
from collections.abc import Sequence
from typing import Any

from taskmix.config import PolicySpec
from taskmix.errors import UserError, unknown
from taskmix.integrations.rollouts import check_policy, signals_of
from taskmix.mixing import Decisions

__all__ = ["EnvironmentMix"]

#: Of the standard deviation, as in GRPO: keeps the advantages of equal rewards finite.
_EPSILON = 1e-4


class EnvironmentMix(Decisions):
    """Picks the environment of each group of completions, and learns from its rewards.

    It has the method `pick` of the environment mix that is a draft in prime-rl (#2722), and the
    methods of prime-rl's samplers (#3261): `observe`, with arguments of its own, `state_dict`,
    `load_state_dict` and `metrics`. Groups may be reported late and in any order: a report settles
    the oldest open draw of its environment. A draw whose group is never reported, because it was
    cancelled, has to be given up with `drop`.

    Args:
        policy, options: see `taskmix.mixing.Decisions`.

    >>> import taskmix
    >>> mix = EnvironmentMix(taskmix.SEC(["math", "code"]), seed=1)
    >>> name = mix.pick()
    >>> mix.observe(name, rewards=[1.0, 0.0, 0.0, 1.0], tokens=[12, 7, 9, 10])
    >>> mix.metrics()[f"share/{name}"]
    1.0
    """

    def __init__(self, policy: PolicySpec, *args: Any, **options: Any) -> None:
        super().__init__(policy, *args, **options)
        check_policy(self.policy)

    def pick(self) -> str:
        """Return the environment of the next group."""
        return self.ask().task

    def observe(
        self,
        environment: str,
        rewards: Sequence[float | None],
        advantages: Sequence[float] | None = None,
        tokens: Sequence[int] | None = None,
    ) -> None:
        """Report the completions of a group.

        Args:
            environment: its name.
            rewards: of the completions; None for those without one, but not for all.
            advantages: of the completions; rewards normalised by mean and standard deviation if
                None.
            tokens: the length of each completion, if known.
        """
        scored = [float(reward) for reward in rewards if reward is not None]
        if not scored or not all(map(math.isfinite, scored)):
            raise UserError(
                f"rewards of {environment}: expected finite numbers, one for each completion, "
                f"found {rewards!r}"
            )
        values = [math.nan if reward is None else float(reward) for reward in rewards]
        measured = signals_of(values, [0.0] if advantages is None else advantages, len(values))
        if advantages is None:
            mean, scale = measured["reward"], measured["spread"] + _EPSILON
            measured["advantage"] = sum(abs(value - mean) for value in scored) / len(values) / scale
        counted = {"examples": len(values), "tokens": None if tokens is None else sum(tokens)}
        self.settle(self._oldest(environment), **dict[str, Any](measured, **counted))

    def drop(self, environment: str) -> None:
        """Give up the oldest open draw of an environment."""
        del self.open[self._oldest(environment)]

    def metrics(self) -> dict[str, float]:
        """Return the share of each environment in the completions so far."""
        return {f"share/{name}": share for name, share in self.shares().items()}

    def _oldest(self, environment: str) -> int:
        if environment not in self.policy.tasks:
            raise unknown("environment", environment, self.policy.tasks, "a group")
        for number, draw in self.open.items():
            if draw.task == environment:
                return number
        raise UserError(f"a group of {environment}: expected one that was picked, found none open")
