"""A distribution that somebody chose."""

from collections.abc import Mapping
from typing import Self

from taskmix.policies.base import Constant, in_order
from taskmix.run_info import RunInfo


class Fixed(Constant):
    """Draws from a given distribution: the ORACLE of a bandit, or what an earlier run taught.

    Args:
        probabilities: by task, its probability; together 1, within 1e-6.

    >>> from taskmix.rng import stream
    >>> Fixed({"cola": 0.25, "rte": 0.75}).ask(stream(2, "draws")).probability
    0.75
    """

    name = "fixed"

    def __init__(self, probabilities: Mapping[str, float]) -> None:
        total = sum(probabilities.values())
        if not abs(total - 1) <= 1e-6:
            raise ValueError(f"probabilities: expected a sum of 1, found {total}")
        super().__init__(probabilities)

    @classmethod
    def for_run(cls, info: RunInfo, probabilities: Mapping[str, float]) -> Self:
        """Takes a probability for each task of the run."""
        return cls(in_order(probabilities, info.tasks, "probabilities"))
