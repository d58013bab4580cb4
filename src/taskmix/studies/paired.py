"""Differences between contestants over the same seeds: intervals, and a corrected test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from taskmix.tables import UNKNOWN, TableCell

ALPHA = 0.05
"""The significance level of the test; intervals have the confidence level 1 - ALPHA."""
LATER_ALPHA = 0.01
"""The significance level that all looks after the first one share."""
MIN_SEEDS = 3
"""Seeds that an interval and a test need."""
_ROUNDING = 1e-9
"""Score differences below this are rounding errors."""


@dataclass(frozen=True)
class Unit:
    """The format of values in tables; of the values themselves, higher is better."""

    factor: float  # negative where a lower value shown is better
    digits: int
    words: str
    better: str  # "above" or "below": the side of the baseline where a better contestant is shown

    def level(self, value: float) -> str:
        """Return a value as tables show it.

        >>> SCORES.level(0.6625), LOSSES.level(-5.9443)
        ('66.2', '5.944')
        """
        return f"{self.factor * value:.{self.digits}f}"

    def range(self, values: Sequence[float]) -> str:
        """Return the lowest and the highest value shown.

        >>> SCORES.range([0.7, 0.5, 0.6]), LOSSES.range([-5.5, -5.9])
        ('50.0 to 70.0', '5.500 to 5.900')
        """
        low, high = sorted((min(values), max(values)), key=lambda value: self.factor * value)
        return f"{self.level(low)} to {self.level(high)}"

    def spread(self, values: Sequence[float]) -> TableCell:
        """Return the mean over the seeds, with their range where there are several.

        >>> SCORES.spread([0.5, 0.7]).text
        '60.0 (50.0 to 70.0)'
        """
        text = self.level(mean(values))
        if len(values) > 1:
            text += f" ({self.range(values)})"
        return TableCell(text, mean(values))

    def difference(self, value: float) -> str:
        """Return by how much a contestant is better.

        >>> SCORES.difference(0.012), LOSSES.difference(0.117), SCORES.difference(-1e-9)
        ('+1.2', '+0.117', '+0.0')
        """
        return f"{abs(self.factor) * value:+z.{self.digits}f}"


SCORES = Unit(100, 1, "points", "above")
LOSSES = Unit(-1, 3, "nats", "below")
"""The values are negated losses."""


@dataclass(frozen=True)
class Difference:
    """The mean difference of a contestant to the baseline, over the seeds of both."""

    mean: float
    seeds: int
    low: float | None = None  # of the 95% interval of this difference alone
    high: float | None = None
    p: float | None = None  # of the paired t-test, corrected for contestants and earlier looks
    deviation: float | None = None  # standard deviation of the difference over the seeds
    looks: tuple[int, ...] = ()  # the numbers of seeds at which it was tested before

    @property
    def significant(self) -> bool:
        """Whether the corrected test rejects that contestant and baseline are equal."""
        return self.p is not None and self.p < ALPHA


def differences(
    scores: Mapping[str, Mapping[int, float]],
    baseline: str,
    looks: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Difference]:
    """Return the difference of each contestant to the baseline, from scores by name and seed.

    The test is Student's paired t-test of each contestant with the baseline, corrected by Holm's
    method (1979). Comparisons have 3 to 10 seeds: a sign test or rank test has no result below 0.05
    with fewer than 6 seeds, and Dunnett's test assumes equal variances, which a fixed and a learned
    policy do not have. Holm's method holds for dependent tests, and these share a baseline.

    Args:
        scores: by contestant and seed; higher is better.
        baseline: the contestant that the others are compared with.
        looks: by contestant, the numbers of seeds at which it was tested before; see `level_at`.

    >>> scores = {"random": {1: 0.50, 2: 0.52, 3: 0.51}, "mine": {1: 0.54, 2: 0.58, 3: 0.56}}
    >>> mine = differences(scores, "random")["mine"]
    >>> round(mine.mean, 3), round(mine.p, 3)
    (0.05, 0.013)
    """
    base = scores[baseline]
    uncorrected = {
        name: _difference(
            [score - base[seed] for seed, score in by_seed.items() if seed in base],
            (looks or {}).get(name, ()),
        )
        for name, by_seed in scores.items()
        if name != baseline and by_seed.keys() & base.keys()
    }
    corrected = holm([difference.p for difference in uncorrected.values()])
    return {
        name: replace(difference, p=p)
        for (name, difference), p in zip(uncorrected.items(), corrected, strict=True)
    }


def level_at(seeds: int, looks: Sequence[int] = ()) -> float:
    """Return the significance level of a test with so many seeds after earlier looks.

    Testing again whenever seeds were added would raise false alarms: of equal contestants, 17%
    would differ at one of the looks with 3 to 10 seeds. So the levels of all looks are limited in
    their sum (alpha spending; Lan and DeMets 1983). The first look is the plain test at 5%. A look
    at n seeds after one at m gets the part k (1/m - 1/n) of `LATER_ALPHA`, where k is the number of
    seeds of the first look. These parts sum to less than 1, so by the union bound at most 6% of
    equal contestants ever differ.

    >>> level_at(5), round(level_at(10, [5]), 4), round(level_at(20, [5, 10]), 4)
    (0.05, 0.005, 0.0025)
    """
    earlier = [look for look in looks if MIN_SEEDS <= look < seeds]
    if not earlier:
        return ALPHA
    return LATER_ALPHA * min(earlier) * (1 / max(earlier) - 1 / seeds)


def _difference(by_seed: Sequence[float], looks: Sequence[int]) -> Difference:
    """Return the mean with its interval and the p-value of the t-test, corrected for the looks."""
    from scipy.special import stdtr, stdtrit  # Student's distribution, and its inverse

    seeds, middle = len(by_seed), mean(by_seed)
    if seeds < MIN_SEEDS:
        return Difference(middle, seeds)
    deviation = stdev(by_seed)
    error = deviation / math.sqrt(seeds)
    if error > _ROUNDING:
        level = level_at(seeds, looks)
        half = float(stdtrit(seeds - 1, 1 - level / 2)) * error
        p = min(1.0, 2 * float(stdtr(seeds - 1, -abs(middle) / error)) * ALPHA / level)
        return Difference(middle, seeds, middle - half, middle + half, p, deviation, tuple(looks))
    if abs(middle) <= _ROUNDING:  # the same runs under two names
        return Difference(middle, seeds, middle, middle, 1.0, 0.0, tuple(looks))
    # Coarse scores may differ by the same amount with every seed; their noise is unknown.
    return Difference(middle, seeds)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return p-values corrected for multiple tests (Holm 1979).

    The smallest of m is multiplied by m, the next by m - 1, and so on, and none may fall below the
    one before it. A missing p-value counts as a test and stays missing.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for place, (p, k) in enumerate(sorted((p, k) for k, p in enumerate(ps) if p is not None)):
        largest = max(largest, min(1.0, (len(ps) - place) * p))
        corrected[k] = largest
    return corrected


def interval_words(found: Difference, unit: Unit = SCORES) -> str:
    """Return a difference, with its interval where there is one.

    >>> interval_words(Difference(0.012, 3, -0.001, 0.025))
    '+1.2 (-0.1 to +2.5)'
    """
    text = unit.difference(found.mean)
    if found.low is None or found.high is None:
        return text
    return f"{text} ({unit.difference(found.low)} to {unit.difference(found.high)})"


def p_words(found: Difference) -> str:
    """Return a p-value as tables show it.

    >>> p_words(Difference(0.1, 3, 0.0, 0.2, p=0.0312)), p_words(Difference(0.1, 1))
    ('0.031', '–')
    """
    if found.p is None:
        return UNKNOWN
    return "<0.001" if found.p < 0.001 else f"{found.p:.3f}"


def how_tested(found: Mapping[str, Difference]) -> str:
    """Return one sentence on the test, or on why there is none."""
    seeds = max((difference.seeds for difference in found.values()), default=0)
    if seeds < MIN_SEEDS:
        return (
            f"With fewer than {MIN_SEEDS} seeds there is no interval and no test of the "
            "differences; run more seeds, five or more to tell small differences from chance."
        )
    count = len(found)
    corrected = "" if count == 1 else f", corrected for {count} comparisons by Holm's method"
    return (
        f"Differences are paired by seed, with 95% intervals of each alone; p is of a paired t-test"
        f"{corrected}."
    )
