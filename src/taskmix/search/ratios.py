"""The mixing ratios of AutoSeM: numbers of mini-batches of a primary and auxiliary tasks."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from taskmix.errors import UserError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

    from taskmix.search.sampler import GPHedgeSampler

Ratio = dict[str, int]


def reduced(ratio: Mapping[str, int]) -> Ratio:
    """Return a ratio in lowest terms.

    Args:
        ratio: the number of mini-batches of each task in a cycle; not all 0.

    >>> reduced({"rte": 2, "qqp": 4, "wnli": 0})
    {'rte': 1, 'qqp': 2, 'wnli': 0}
    """
    divisor = math.gcd(*ratio.values())
    if divisor == 0 or min(ratio.values()) < 0:
        raise UserError(
            f"ratio: expected whole numbers, none below 0 and not all 0, found {dict(ratio)}."
        )
    return {task: count // divisor for task, count in ratio.items()}


@dataclass(frozen=True)
class RatioSpace:
    """The mixing ratios of a primary task and its auxiliaries.

    Guo, Pasunuru and Bansal (2019) give no bounds; their learned ratios (20:0:5, 13:5:0:0, …) fit
    1 to 20 for the primary and 0 to 5 for an auxiliary. 2:4 and 1:2 are equivalent: the same
    training, up to the order of the batches.

    Args:
        primary: the primary task, which the others should help.
        auxiliaries: the other tasks.
        primary_range: the minimum and maximum number of mini-batches of the primary in a cycle.
        auxiliary_range: the same for each auxiliary; 0 leaves it out.

    >>> space = RatioSpace("rte", ("qqp", "mnli"))
    >>> space.canonical({"rte": 20, "qqp": 0, "mnli": 5})
    {'rte': 4, 'qqp': 0, 'mnli': 1}
    >>> [tuple(ratio.values()) for ratio in space.grid(4)]
    [(1, 0, 0), (1, 5, 0), (4, 0, 1), (4, 1, 1)]
    """

    primary: str
    auxiliaries: Sequence[str]
    primary_range: tuple[int, int] = (1, 20)
    auxiliary_range: tuple[int, int] = (0, 5)

    def __post_init__(self) -> None:
        if not self.auxiliaries or len(set(self.tasks)) < len(self.tasks):
            raise UserError(
                "auxiliaries: expected at least one task, each named once and none of them the"
                f" primary {self.primary!r}, found {list(self.auxiliaries)}."
            )
        for name, least in (("primary_range", 1), ("auxiliary_range", 0)):
            low, high = getattr(self, name)
            if not least <= low <= high:
                raise UserError(
                    f"{name}: expected two whole numbers in order, at least {least},"
                    f" found {low} and {high}."
                )

    @property
    def tasks(self) -> tuple[str, ...]:
        return (self.primary, *self.auxiliaries)

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The minimum and maximum number of mini-batches of each task."""
        return {self.primary: self.primary_range} | dict.fromkeys(
            self.auxiliaries, self.auxiliary_range
        )

    def distributions(self) -> "dict[str, BaseDistribution]":
        """Return the tasks as parameters of an Optuna study."""
        from optuna.distributions import IntDistribution

        return {task: IntDistribution(low, high) for task, (low, high) in self.ranges.items()}

    def suggest(self, trial: "Trial") -> Ratio:
        """Return the ratio of an Optuna trial."""
        return {
            task: trial.suggest_int(task, low, high) for task, (low, high) in self.ranges.items()
        }

    def sampler(self, seed: int | None = None, initial: int = 10) -> "GPHedgeSampler":
        """Return a sampler that tries no ratio twice and compares ratios by their shares.

        Args:
            seed: the seed of all random choices; a random one if None.
            initial: the number of random ratios before the Gaussian process is used.
        """
        from taskmix.search import GPHedgeSampler

        return GPHedgeSampler(
            seed=seed,
            initial=initial,
            space=self.distributions(),
            canonical=self.canonical,
            features=self.shares,
        )

    def canonical(self, ratio: Mapping[str, int]) -> Ratio:
        """Return the smallest ratio within the ranges that is equivalent to this one."""
        lowest = reduced({task: ratio[task] for task in self.tasks})
        for factor in range(1, self.primary_range[1] // lowest[self.primary] + 1):
            scaled = {task: factor * count for task, count in lowest.items()}
            if all(low <= scaled[task] <= high for task, (low, high) in self.ranges.items()):
                return scaled
        raise UserError(
            f"ratio: expected one that is equivalent to a ratio within {self.ranges}, found"
            f" {dict(ratio)}."
        )

    def shares(self, ratio: Mapping[str, int]) -> list[float]:
        """Return each auxiliary's share of the mini-batches; equal for equivalent ratios."""
        total = sum(ratio[task] for task in self.tasks)
        return [ratio[task] / total for task in self.auxiliaries]

    def grid(self, count: int) -> list[Ratio]:
        """Return `count` ratios, no two equivalent, from the coarsest regular grid with so many."""
        levels = 1
        ratios: list[Ratio] = []
        widest = max(high - low + 1 for low, high in self.ranges.values())
        while len(ratios) < count and levels <= widest:
            levels += 1
            ratios = self._regular(levels)
        if len(ratios) < count:
            raise UserError(
                f"grid: expected at most {len(ratios)} ratios, all that {self.ranges} has, found"
                f" {count}."
            )
        kept = np.linspace(0, len(ratios) - 1, count).round().astype(int)
        return [ratios[k] for k in kept]

    def _regular(self, levels: int) -> list[Ratio]:
        """Return the different ratios of a grid with this many levels for each task."""
        axes = [
            np.unique(np.linspace(low, high, min(levels, high - low + 1)).round().astype(int))
            for low, high in self.ranges.values()
        ]
        points = itertools.product(*(axis.tolist() for axis in axes))
        ratios = [self.canonical(dict(zip(self.tasks, point, strict=True))) for point in points]
        return list({tuple(ratio.values()): ratio for ratio in ratios}.values())
