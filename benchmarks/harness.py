"""How speed is measured here: ratios within one run, A and B in turn, medians."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One measured figure beside the goal it is held against."""

    name: str
    value: float
    unit: str
    goal: str
    ok: bool


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median_ratio(slow: Callable[[], object], fast: Callable[[], object], repeats: int = 7) -> float:
    """Median over interleaved pairs of time(slow) / time(fast), after one warm-up of each."""
    slow(), fast()
    return statistics.median(seconds(slow) / seconds(fast) for _ in range(repeats))


def microseconds(work: Callable[[], object], calls: int, repeats: int = 7) -> float:
    """Median microseconds of one of the `calls` that `work` makes."""
    work()
    return statistics.median(seconds(work) for _ in range(repeats)) / calls * 1e6
