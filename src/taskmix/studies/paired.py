"""Differences between contestants over the same seeds: intervals, and a corrected test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

LEVEL = 0.95
"""Of intervals."""
ALPHA = 1 - LEVEL
"""The false-alarm rate of the test."""
LEAST_SEEDS = 2
"""Seeds that an interval needs; fewer show no noise."""
_ROUNDING = 1e-9
"""Differences of scores that are nearer to each other than this are equal but for rounding."""


@dataclass(frozen=True)
class Unit:
    """How tables give what contestants are judged by, of which more is better.

    Args:
        factor: what is shown for 1; below 0 where less of it is better.
        digits: behind the point.
        words: what it is called.
        better: where a better contestant is, seen from the baseline.
    """

    factor: float
    digits: int
    words: str
    better: str

    def level(self, value: float) -> str:
        """Return a value as tables give it.

        >>> SCORES.level(0.6625), LOSSES.level(-5.9443)
        ('66.2', '5.944')
        """
        return f"{self.factor * value:.{self.digits}f}"

    def range(self, values: Sequence[float]) -> str:
        """Return the lowest and the highest of some values, as they are shown.

        >>> SCORES.range([0.7, 0.5, 0.6]), LOSSES.range([-5.5, -5.9])
        ('50.0 to 70.0', '5.500 to 5.900')
        """
        low, high = sorted((min(values), max(values)), key=lambda value: self.factor * value)
        return f"{self.level(low)} to {self.level(high)}"

    def difference(self, value: float) -> str:
        """Return by how much a contestant is better.

        >>> SCORES.difference(0.012), LOSSES.difference(0.117), SCORES.difference(-1e-9)
        ('+1.2', '+0.117', '+0.0')
        """
        return f"{abs(self.factor) * value:+z.{self.digits}f}"


SCORES = Unit(100, 1, "in hundredths", "above")
LOSSES = Unit(-1, 3, "in nats", "below")
"""Of the negative of a loss."""


@dataclass(frozen=True)
class Difference:
    """How much a contestant is above the baseline, over the seeds that both were run with.

    Args:
        mean: of the differences.
        seeds: how many there are.
        low: the lower end of the 95% interval of this difference alone; None where there is none.
        high: its upper end.
        p: of the paired t-test, corrected for the number of contestants; None where there is none.
    """

    mean: float
    seeds: int
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the corrected test tells the contestant from the baseline."""
        return self.p is not None and self.p < ALPHA


def differences(scores: Mapping[str, Mapping[int, float]], baseline: str) -> dict[str, Difference]:
    """Return how much each contestant is above the baseline.

    The test is Student's paired t-test of each contestant with the baseline, corrected by Holm's
    method (1979). With 3 to 10 seeds nothing else serves: a test of signs or ranks has no result
    below 0.05 with fewer than 6 seeds, and a test that pools the contestants' variances (Dunnett's)
    counts on variances that are alike, which those of a fixed and of a learned policy are not.
    Holm's method holds however the contestants depend on each other, as they do through the
    baseline that they share.

    Args:
        scores: by contestant, its score with each seed.
        baseline: the contestant that the others are compared with.

    >>> found = differences({"random": {1: 0.50, 2: 0.52}, "mine": {1: 0.54, 2: 0.58}}, "random")
    >>> round(found["mine"].mean, 3), round(found["mine"].p, 3)
    (0.05, 0.126)
    """
    against = scores[baseline]
    found = {
        name: _difference([score - against[seed] for seed, score in own.items() if seed in against])
        for name, own in scores.items()
        if name != baseline and own.keys() & against.keys()
    }
    corrected = holm([each.p for each in found.values()])
    return {
        name: replace(each, p=p) for (name, each), p in zip(found.items(), corrected, strict=True)
    }


def _difference(found: Sequence[float]) -> Difference:
    """Return the mean with its interval and the p-value of the t-test, before any correction."""
    from scipy.special import stdtr, stdtrit  # Student's distribution, and its inverse

    seeds, middle = len(found), mean(found)
    if seeds < LEAST_SEEDS:
        return Difference(middle, seeds)
    error = stdev(found) / math.sqrt(seeds)
    if error > _ROUNDING:
        half = float(stdtrit(seeds - 1, (1 + LEVEL) / 2)) * error
        p = 2 * float(stdtr(seeds - 1, -abs(middle) / error))
        return Difference(middle, seeds, middle - half, middle + half, p)
    if abs(middle) <= _ROUNDING:  # the same runs under two names
        return Difference(middle, seeds, middle, middle, 1.0)
    # Coarse scores may differ by the same amount with every seed: that shows no noise to
    # measure a difference by.
    return Difference(middle, seeds)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return p-values that are corrected for their number (Holm 1979).

    The smallest of m is multiplied by m, the next by m - 1, and so on; none falls below one that is
    smaller. One that is missing counts as a contestant and stays missing.

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
    """Return a p-value as tables give it.

    >>> p_words(Difference(0.1, 3, 0.0, 0.2, p=0.0312)), p_words(Difference(0.1, 1))
    ('0.031', '–')
    """
    if found.p is None:
        return "–"
    return "<0.001" if found.p < 0.001 else f"{found.p:.3f}"


def how_tested(found: Mapping[str, Difference]) -> str:
    """Return one sentence on the test, or on why there is none."""
    seeds = max((each.seeds for each in found.values()), default=0)
    if seeds < LEAST_SEEDS:
        return (
            "With one seed there is no interval and no test of the differences; run more seeds, "
            "five or more to tell small differences from chance."
        )
    count = len(found)
    corrected = "" if count == 1 else f", corrected for {count} comparisons by Holm's method"
    return (
        f"Differences are paired by seed, with 95% intervals of each alone; p is of a paired t-test"
        f"{corrected}."
    )
