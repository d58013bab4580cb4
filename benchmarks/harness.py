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


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """How long one call takes."""
    start = clock()
    work()
    return clock() - start


def median_ratio(slow: Callable[[], object], fast: Callable[[], object], repeats: int = 7) -> float:
    """Median over interleaved pairs of time(slow) / time(fast), after one warm-up of each."""
    slow(), fast()
    return statistics.median(seconds(slow) / seconds(fast) for _ in range(repeats))


def ratio_result(
    name: str, slow: Callable[[], object], fast: Callable[[], object], goal: float
) -> Result:
    """The median and range of three ratios of CPU time, which other load does not change."""
    ratios = [seconds(slow, time.process_time) / seconds(fast, time.process_time) for _ in range(3)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    value = statistics.median(ratios)
    return Result(f"{name} ({spread})", value, "x", f">= {goal}", value >= goal)


def microseconds(work: Callable[[], object], calls: int, repeats: int = 7) -> float:
    """Median microseconds of one of the `calls` that `work` makes."""
    work()
    return statistics.median(seconds(work) for _ in range(repeats)) / calls * 1e6
