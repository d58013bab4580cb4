"""The choice of the entropy weight λ from the logs."""

from collections.abc import Callable

import numpy as np

from taskmix.offpolicy.estimators import Evidence, WeightedImportanceSampling
from taskmix.offpolicy.sample import Sample, folds_of
from taskmix.offpolicy.solvers import Totals
from taskmix.offpolicy.target import Still
from taskmix.policies.state import Array

#: The candidates for λ, in units of the range of the tasks' mean rewards.
CANDIDATES = np.geomspace(0.05, 50.0, 31)
#: The maximum relative change of the tasks' shares, as a root mean square over the draws.
MAX_CHANGE = 0.3
#: With fewer decisions the largest λ is used.
MIN_DECISIONS = 8
#: The one-sided 95% quantile of the normal distribution.
Z_95 = 1.645

#: Learns a policy from a sample with a λ, and returns its mean distribution over a run.
Learn = Callable[[Sample, float], Array]


def chosen_entropy_weight(sample: Sample, learn: Learn) -> float:
    """Return the λ for `auto`, which two rules keep from being too small."""
    # 1. Rewards depend on how far each task has been trained. A policy that draws a task far more
    #    often than the logger changes them, which no estimate from the log can show. With
    #    importance weights u, ESS / T = 1 / (1 + χ²), where χ² is the mean square of u - 1: the
    #    relative change of the tasks' shares. So ESS ≥ T / (1 + 0.3²) limits the change to 30%.
    #    (T is replaced by the largest ESS, as even the uniform policy may be far from the logger.)
    # 2. Differences between tasks may be noise. So the λ is chosen by cross-validation: learned
    #    from half of the draws, its policy has the largest lower 95% bound of the gain over the
    #    loggers on the other half. Without differences, that is the largest λ: almost uniform.
    spread = _spread(sample)
    if spread == 0:
        return 0.25
    weights = CANDIDATES * spread
    if len(np.unique(sample.decisions)) < MIN_DECISIONS:
        return float(weights[-1])
    sizes = _sizes(sample, learn, weights)
    allowed = weights[int(np.argmax(sizes * (1 + MAX_CHANGE**2) >= sizes.max())) :]
    half = folds_of(sample.decisions, 2)
    halves = [sample.part(half == number) for number in (0, 1)]
    bounds = [_bound(halves, learn, float(weight)) for weight in allowed]
    return float(allowed[int(np.argmax(bounds))])


def closeness(sample: Sample, learn: Learn, entropy_weight: float) -> float:
    """Return the effective sample size with a λ, divided by the smallest that `auto` allows."""
    spread = _spread(sample)
    if spread == 0:
        return 1.0
    smallest = _sizes(sample, learn, CANDIDATES * spread).max() / (1 + MAX_CHANGE**2)
    return _size(sample, learn(sample, entropy_weight)) / float(smallest)


def _spread(sample: Sample) -> float:
    totals = Totals.of(sample)
    return float(np.ptp(totals.rewards / totals.weights))


def _evidence(sample: Sample, probabilities: Array) -> Evidence:
    return WeightedImportanceSampling()(sample, Still(probabilities, sample))


def _size(sample: Sample, probabilities: Array) -> float:
    evidence = _evidence(sample, probabilities).by_decision(sample.decisions)
    return evidence.effective_sample_size()


def _sizes(sample: Sample, learn: Learn, weights: Array) -> Array:
    return np.array([_size(sample, learn(sample, float(weight))) for weight in weights])


def _bound(halves: list[Sample], learn: Learn, weight: float) -> float:
    """Return the lower bound of the gain over the loggers, learned from each half in turn."""
    gains, variances = [], []
    for training, held_out in (halves, halves[::-1]):
        evidence = _evidence(held_out, learn(training, weight))
        mean = held_out.rewards.mean()
        gain = Evidence(
            evidence.value - mean, evidence.terms - (held_out.rewards - mean), evidence.weights
        ).by_decision(held_out.decisions)
        gains.append(gain.value)
        variances.append(gain.standard_error() ** 2)
    return float(np.mean(gains) - Z_95 * np.sqrt(np.sum(variances)) / 2)
