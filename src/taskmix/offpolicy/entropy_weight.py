"""The entropy weight, chosen from the logs."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy.evidence import Evidence
from taskmix.offpolicy.folds import folds_of
from taskmix.offpolicy.objective import Totals
from taskmix.offpolicy.pooling import Sample
from taskmix.offpolicy.target import Still
from taskmix.offpolicy.weighted import WeightedImportanceSampling

#: The weights that are tried, in units of the spread between the tasks' mean rewards.
CANDIDATES = np.geomspace(0.05, 50.0, 31)
#: How far the tasks' shares may move, relatively, as a root mean square over the draws.
REACH = 0.3
#: With fewer decisions nothing is learned from their halves.
FEWEST = 8
#: One-sided 95%.
DOUBT = 1.645


#: The mean distribution over a run of the policy that is learned from a sample with a λ.
Learn = Callable[[Sample, float], NDArray[np.float64]]


def chosen_entropy_weight(sample: Sample, learn: Learn) -> float:
    """Return a λ that the log can answer for.

    Two things speak against a small λ, and each sets a limit.

    *The log describes the training it came from.* Rewards depend on how far each task has been
    trained; a policy that draws a task far more often than the logger finds other rewards there,
    and no estimate from the log knows them. With u the importance weights, ESS / T = 1 / (1 + χ²),
    where χ² is the mean square of u - 1: the relative change of the tasks' shares. A floor of
    ESS ≥ T / (1 + 0.3²) lets shares change by 30%, and no further in one improvement. (The largest
    ESS of any λ stands for T, as even the uniform policy may be far from the logger.)

    *Differences between tasks may be noise.* So λ is the one whose policy, learned from half of the
    draws, shows on the other half the largest gain over the loggers' own mean reward, less 1.645
    standard errors of that gain: a lower 95% bound. Without a difference between the tasks no gain
    is worth its error, and the largest λ wins: close to uniform.
    """
    spread = _spread(sample)
    if spread == 0:
        return 0.25
    weights = CANDIDATES * spread
    if len(np.unique(sample.decisions)) < FEWEST:
        return float(weights[-1])
    sizes = _sizes(sample, learn, weights)
    allowed = weights[int(np.argmax(sizes * (1 + REACH**2) >= sizes.max())) :]
    halves = _halves(sample)
    bounds = [_bound(halves, learn, float(weight)) for weight in allowed]
    return float(allowed[int(np.argmax(bounds))])


def closeness(sample: Sample, learn: Learn, entropy_weight: float) -> float:
    """Return the effective sample size that a λ leaves, over the smallest one that `auto` allows.

    Below 1 its policy moves further from the loggers than `auto` would.
    """
    spread = _spread(sample)
    if spread == 0:
        return 1.0
    smallest = _sizes(sample, learn, CANDIDATES * spread).max() / (1 + REACH**2)
    return _size(sample, learn(sample, entropy_weight)) / float(smallest)


def _spread(sample: Sample) -> float:
    totals = Totals.of(sample)
    return float(np.ptp(totals.rewards / totals.weights))


def _evidence(sample: Sample, probabilities: NDArray[np.float64]) -> Evidence:
    return WeightedImportanceSampling()(sample, Still(probabilities, sample))


def _size(sample: Sample, probabilities: NDArray[np.float64]) -> float:
    evidence = _evidence(sample, probabilities).by_decision(sample.decisions)
    return evidence.effective_sample_size()


def _sizes(sample: Sample, learn: Learn, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([_size(sample, learn(sample, float(weight))) for weight in weights])


def _halves(sample: Sample) -> list[Sample]:
    """Two parts that have no decision in common."""
    half = folds_of(sample.decisions, 2)
    return [sample.part(half == number) for number in (0, 1)]


def _bound(halves: list[Sample], learn: Learn, weight: float) -> float:
    """The lower bound of the gain over the loggers, from both halves, each judging the other's."""
    gains, variances = [], []
    for learned, judged in (halves, halves[::-1]):
        evidence = _evidence(judged, learn(learned, weight))
        mean = judged.rewards.mean()
        gain = Evidence(
            evidence.value - mean, evidence.terms - (judged.rewards - mean), evidence.weights
        ).by_decision(judged.decisions)
        gains.append(gain.value)
        variances.append(gain.standard_error() ** 2)
    return float(np.mean(gains) - DOUBT * np.sqrt(np.sum(variances)) / 2)
