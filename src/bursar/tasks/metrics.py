"""The official metrics of the benchmarks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """A named score between 0 and 1 (correlations: -1 and 1), higher is better.

    Args:
        name: how tables call it.
        compute: predicted and expected values, and the group of each where the benchmark scores
            groups, to a number.
    """

    name: str
    compute: Callable[[Sequence[Any], Sequence[Any], Sequence[Any] | None], float]
