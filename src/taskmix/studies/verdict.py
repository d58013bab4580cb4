"""The result of a comparison in one or two sentences, and statistics that describe it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream
from taskmix.studies.paired import LOSSES, MIN_SEEDS, SCORES, Difference, Unit, level_at, p_words

Floats = NDArray[np.float64]

RELEVANT = 0.01
"""The difference that a user cares about: one point of a score, 0.01 nats of a loss."""
POWER = 0.8
"""The probability with which the recommended seeds detect a relevant difference."""
MAX_MORE_SEEDS = 100
FEW_SEEDS = 5
"""Seeds that are recommended where there are too few for a test."""
MIN_TASKS = 5
"""Tasks from which on an interquartile mean is given."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison.

    Args:
        sentence: for people.
        kind: better or worse: a contestant differs from the baseline by more than noise; same: all
            intervals lie within half a point; open: noise explains the differences; untested: there
            are too few seeds or contestants.
        contestant: the contestant that the sentence is about, if there is one.
    """

    sentence: str
    kind: Literal["better", "worse", "same", "open", "untested"]
    contestant: str | None = None


def verdict(
    differences: Mapping[str, Difference],
    baseline: str,
    unit: Unit = SCORES,
    cost: Mapping[str, float] | None = None,
) -> Verdict:
    """Return who won, by how much, whether it is more than noise, and its cost.

    Args:
        differences: of each contestant to the baseline, as `paired.differences` returns them.
        baseline: the name of the baseline.
        unit: of the differences.
        cost: by contestant and baseline, the examples passed forward and backward.

    >>> found = {"aimed": Difference(0.012, 5, 0.003, 0.021, p=0.02)}
    >>> verdict(found, "random", cost={"aimed": 102, "random": 100}).sentence
    'aimed is 1.2 points above random (95% interval +0.3 to +2.1, 5 seeds, p 0.020)
    for 2% more compute.'
    """
    if not differences:
        return Verdict(f"There is no other contestant to compare {baseline} with.", "untested")
    tested = {name: d for name, d in differences.items() if d.p is not None}
    best = max(tested or differences, key=lambda name: differences[name].mean)
    if not tested:
        return Verdict(_untested(best, baseline, differences[best], unit), "untested", best)
    untested = [name for name in differences if name not in tested]
    note = f" Not tested: {', '.join(untested)}." if untested else ""
    significant = {name: d for name, d in tested.items() if d.significant}
    if significant:
        first = max(significant, key=lambda name: significant[name].mean)
        difference = significant.pop(first)
        paid = _cost_words(first, baseline, cost)
        sentence = _beyond_noise(first, baseline, difference, unit, paid)
        if significant:
            others = (f"{n} ({_signed(d.mean, unit)})" for n, d in significant.items())
            sentence += f" Also different from {baseline}: {', '.join(others)}."
        return Verdict(sentence + note, "better" if difference.mean > 0 else "worse", first)
    if all(_within_half(d) for d in differences.values()):
        return Verdict(_same(differences, baseline, unit), "same", best)
    return Verdict(_open(best, baseline, differences, unit) + note, "open", best)


def _within_half(difference: Difference) -> bool:
    low, high = difference.low, difference.high
    return low is not None and high is not None and max(-low, high) <= RELEVANT / 2


def _beyond_noise(name: str, baseline: str, difference: Difference, unit: Unit, cost: str) -> str:
    half = f": more than noise, but within {_amount(RELEVANT / 2, unit)}"
    return (
        f"{name} is {_amount(abs(difference.mean), unit)} {_side(difference, unit)} {baseline} "
        f"({_evidence(difference, unit)}){cost}{half if _within_half(difference) else ''}."
    )


def _same(differences: Mapping[str, Difference], baseline: str, unit: Unit) -> str:
    low = min(d.low for d in differences.values() if d.low is not None)
    high = max(d.high for d in differences.values() if d.high is not None)
    return (
        f"{_listed([baseline, *differences])} are practically the same: the 95% "
        f"{'interval' if len(differences) == 1 else 'intervals'} of the difference to {baseline} "
        f"({_signed(low, unit)} to {_signed(high, unit)}) "
        f"{'lies' if len(differences) == 1 else 'lie'} within {_amount(RELEVANT / 2, unit)}."
    )


def _open(name: str, baseline: str, differences: Mapping[str, Difference], unit: Unit) -> str:
    best = differences[name]
    assert best.low is not None  # it is tested
    assert best.high is not None
    of = "" if len(differences) == 1 else f" for the best of the others, {name},"
    more = more_seeds(best, len(differences))
    run = f"it takes over {MAX_MORE_SEEDS} more seeds"
    if more is not None:
        run = f"run {more} more seed{'' if more == 1 else 's'}"
    return (
        f"No difference to {baseline} beyond noise: the 95% interval{of} reaches from "
        f"{_signed(best.low, unit)} to {_signed(best.high, unit)} ({best.seeds} seeds, p "
        f"{p_words(best)}); to detect a difference of {_amount(RELEVANT, unit)}, {run}."
    )


def _untested(name: str, baseline: str, difference: Difference, unit: Unit) -> str:
    sentence = (
        f"{name} is {_amount(abs(difference.mean), unit)} {_side(difference, unit)} {baseline}"
    )
    if difference.seeds < MIN_SEEDS:
        return (
            f"{sentence} with {difference.seeds} seed{'' if difference.seeds == 1 else 's'}, too "
            f"few for a verdict: run {FEW_SEEDS - difference.seeds} more seeds."
        )
    return f"{sentence} with each of {difference.seeds} seeds, so their noise is unknown."


def _evidence(difference: Difference, unit: Unit) -> str:
    interval = ""
    if difference.low is not None and difference.high is not None:
        low, high = difference.low, difference.high
        if unit is LOSSES:  # both are on the side of the mean, which the sentence names
            ends = (f"{end:.{unit.digits}f}" for end in sorted((abs(low), abs(high))))
        else:
            ends = (unit.difference(end) for end in (low, high))
        interval = f"95% interval {' to '.join(ends)}, "
    return f"{interval}{difference.seeds} seeds, p {p_words(difference)}"


def _amount(value: float, unit: Unit) -> str:
    """Return an amount in the unit's words.

    >>> _amount(0.012, SCORES), _amount(0.01, SCORES), _amount(0.005, SCORES), _amount(0.01, LOSSES)
    ('1.2 points', 'one point', 'half a point', '0.010 nats')
    """
    if unit is LOSSES:
        return f"{value:.{unit.digits}f} nats"
    names = {RELEVANT: "one point", RELEVANT / 2: "half a point"}
    return names.get(value) or f"{abs(unit.factor) * value:.{unit.digits}f} points"


def _signed(value: float, unit: Unit) -> str:
    """Return a difference in words whose sign nobody has to guess.

    >>> _signed(0.012, SCORES), _signed(0.012, LOSSES), _signed(-0.1, LOSSES)
    ('+1.2', '0.012 below', '0.100 above')
    """
    if unit is LOSSES:
        return f"{abs(value):.{unit.digits}f} {'above' if value < 0 else 'below'}"
    return unit.difference(value)


def _side(difference: Difference, unit: Unit) -> str:
    better, worse = ("below", "above") if unit is LOSSES else ("above", "below")
    return better if difference.mean >= 0 else worse


def _cost_words(name: str, baseline: str, cost: Mapping[str, float] | None) -> str:
    if not cost or not cost.get(baseline) or name not in cost:
        return ""
    more = cost[name] / cost[baseline] - 1
    if abs(more) < 0.005:
        return " for the same compute"
    return f" for {abs(more):.0%} {'more' if more > 0 else 'less'} compute"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def more_seeds(difference: Difference, contestants: int = 1) -> int | None:
    """Return the additional seeds after which a relevant difference is detected with `POWER`.

    None if `MAX_MORE_SEEDS` are not enough. The number allows for the looks at the difference so
    far and, by Bonferroni's correction, for the number of contestants.

    >>> more_seeds(Difference(0.002, 5, -0.008, 0.012, p=0.6, deviation=0.008))
    7
    """
    from scipy.special import stdtrit

    looks = (*difference.looks, difference.seeds)
    for more in range(1, MAX_MORE_SEEDS + 1):
        seeds = difference.seeds + more
        level = level_at(seeds, looks) / contestants
        quantiles = stdtrit(seeds - 1, 1 - level / 2) + stdtrit(seeds - 1, POWER)
        if quantiles * (difference.deviation or 0.0) / math.sqrt(seeds) <= RELEVANT:
            return more
    return None


@dataclass(frozen=True)
class BootstrapEstimate:
    """A number with its 95% bootstrap interval."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Floats) -> BootstrapEstimate:
    """Return the mean of the middle half of all scores, shape `(seeds, tasks)`.

    Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical precipice".
    The interval is of the stratified bootstrap: seeds are resampled for each task on its own.

    >>> interquartile_mean(np.array([[0.0, 0.4, 0.5, 0.6], [0.1, 0.4, 0.5, 1.0]])).value
    0.45
    """
    samples = _resampled(scores, "interquartile mean").reshape(RESAMPLES, -1)
    return _estimate(float(_middle_mean(scores.reshape(1, -1))[0]), _middle_mean(samples))


def _middle_mean(values: Floats) -> Floats:
    """Return the mean of the middle half of each row."""
    cut = values.shape[1] // 4
    means: Floats = np.sort(values)[:, cut : values.shape[1] - cut].mean(axis=1)
    return means


def probability_of_improvement(scores: Floats, base: Floats) -> BootstrapEstimate:
    """Return how probable it is that a run beats one of the baseline, on a task drawn at random.

    Agarwal et al. (2021): the mean over the tasks of the Mann-Whitney statistic; a tie counts half.
    Both arguments have the shape `(seeds, tasks)`.

    >>> probability_of_improvement(np.array([[0.5], [0.7]]), np.array([[0.5], [0.6]])).value
    0.625
    """
    samples = _resampled(scores, "improvement"), _resampled(base, "improvement of the baseline")
    return _estimate(float(_wins(scores[None], base[None])[0]), _wins(*samples))


def _wins(scores: Floats, base: Floats) -> Floats:
    """Return the statistic of each sample, of arguments of shape `(samples, seeds, tasks)`."""
    tasks = scores.shape[2]
    signs = (np.sign(scores[:, :, None, k] - base[:, None, :, k]) for k in range(tasks))
    wins: Floats = sum((0.5 + 0.5 * sign.mean(axis=(1, 2)) for sign in signs), np.zeros(1)) / tasks
    return wins


def _resampled(scores: Floats, purpose: str) -> Floats:
    """Return stratified bootstrap samples, shape `(resamples, seeds, tasks)`."""
    places = stream(0, purpose).integers(len(scores), size=(RESAMPLES, *scores.shape))
    samples: Floats = np.take_along_axis(scores[None], places, axis=1)
    return samples


def _estimate(value: float, samples: Floats) -> BootstrapEstimate:
    low, high = np.quantile(samples, [0.025, 0.975])
    return BootstrapEstimate(value, float(low), float(high))
