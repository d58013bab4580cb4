"""GP-Hedge: which acquisition function to follow, by what its past nominees turned out to be worth.

Everything that hedging remembers is written into the trials, so a study that is killed, resumed or
shared by several workers has one memory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taskmix.search.axes import Array


def probabilities(gains: Array, eta: float) -> Array:
    """Return the probability of following each acquisition function: softmax(η g).

    Args:
        gains: of each, shape `(functions,)`.
        eta: how strongly a lead in gains counts.

    >>> probabilities(np.array([0.0, 0.0, np.log(2.0)]), eta=1.0).round(3).tolist()
    [0.25, 0.25, 0.5]
    """
    scaled = np.exp(eta * (gains - gains.max()))
    return np.asarray(scaled / scaled.sum())


@dataclass(frozen=True)
class Nomination:
    """What was nominated for one trial, and what was found out about earlier nominees.

    Args:
        nominees: the point that each acquisition function would have tried, by its name.
        followed: the acquisition function that was followed.
        rewards: for some earlier trials, by number, the posterior mean at each of their nominees,
            in standard deviations of the observed values.
        gains: the sum of all rewards so far, on which the choice was made.
    """

    nominees: Mapping[str, Mapping[str, Any]]
    followed: str
    rewards: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return this round as values that JSON can say."""
        return {
            "nominees": {name: dict(point) for name, point in self.nominees.items()},
            "followed": self.followed,
            "rewards": {str(number): dict(means) for number, means in self.rewards.items()},
            "gains": dict(self.gains),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Nomination":
        """Return the round that `to_json` described."""
        rewards = {int(number): means for number, means in value["rewards"].items()}
        return cls(value["nominees"], value["followed"], rewards, value["gains"])


def known_rewards(rounds: Iterable[Nomination]) -> dict[int, Mapping[str, float]]:
    """Return by trial number the rewards of its nominees, each trial counted once.

    Two workers that look at the same moment may both have rewarded a trial; the earlier round's
    word stands.

    Args:
        rounds: in the order of their trials.
    """
    known: dict[int, Mapping[str, float]] = {}
    for each in rounds:
        for number, means in each.rewards.items():
            known.setdefault(number, means)
    return known


def total(rewards: Iterable[Mapping[str, float]], functions: Iterable[str]) -> dict[str, float]:
    """Return the gains: g_i = Σ μ(x_i) over the rewarded trials.

    Args:
        rewards: of each trial.
        functions: the names of the acquisition functions.

    >>> total([{"ei": 1.0, "pi": 0.5}, {"ei": -0.25, "pi": 0.5}], ["pi", "ei"])
    {'pi': 1.0, 'ei': 0.75}
    """
    each = list(rewards)
    return {name: float(sum(means[name] for means in each)) for name in functions}
