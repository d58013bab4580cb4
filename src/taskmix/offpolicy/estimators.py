"""Estimators of the mean reward of a target policy."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy.sample import Sample
from taskmix.offpolicy.target import Still, Target
from taskmix.policies.state import Array

#: The largest ratio of a task's propensities with which the logger counts as constant.
MAX_LOGGER_CHANGE = 1.01
#: Learns the reward of each task, shape `(tasks,)`, from a sample.
RewardModel = Callable[[Sample], Array]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The result of an estimator: a value, and the influence of each observation on it.

    Args:
        value: the estimate.
        terms: the influence of each observation, in the order of the run, shape `(observations,)`.
            To first order, the error of the value is the mean of the terms, which have mean 0.
        weights: the weight of each observation, shape `(observations,)`.
        bias: why an interval around the value would miss the truth; None if there is no reason.
    """

    value: float
    terms: Array
    weights: Array
    bias: str | None = None

    @classmethod
    def of_mean(cls, values: Array, weights: Array) -> Self:
        """Return the evidence of an estimate that is an unweighted mean over the steps."""
        return cls(float(values.mean()), values - values.mean(), weights)

    def by_decision(self, decisions: NDArray[np.int64]) -> "Evidence":
        """Sum the steps of each decision, as they are not independent of each other."""
        _, number = np.unique(decisions, return_inverse=True)
        terms = np.bincount(number, self.terms).astype(np.float64)
        terms *= len(terms) / len(self.terms)
        weights = np.bincount(number, self.weights).astype(np.float64)
        return Evidence(self.value, terms, weights, self.bias)

    def standard_error(self) -> float:
        """Return the standard error of the value, from differences of successive observations.

        Differences exclude slow changes: if rewards fall during training, that adds no error to
        their mean over the run (von Neumann, 1941: the variance is half the mean square of the
        differences). An observation with the share h of all weight pulls the value towards itself,
        so its term is too small by the factor 1 - h, as the jackknife shows.
        """
        differences = self._differences()
        count = len(differences)
        if count == 0:
            return float("inf")
        return float(np.sqrt(differences @ differences / (2 * count * (count + 1))))

    def degrees_of_freedom(self) -> float:
        """Return the effective number of squared differences in the standard error (Kish)."""
        squares = self._differences() ** 2
        total = float(squares @ squares)
        return max(float(squares.sum()) ** 2 / total, 1.0) if total > 0 else 1.0

    def effective_sample_size(self) -> float:
        """Return (Σ u)² / Σ u², the equivalent number of equally weighted draws (Kish, 1965)."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))

    def _differences(self) -> Array:
        share = self.weights / self.weights.sum()
        return np.diff(self.terms / np.maximum(1 - share, 1e-9))


class Estimator(Protocol):
    """Estimates the mean reward of a target policy from a sample of logged draws."""

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """Return the value and the influence of each step on it."""


@dataclass(frozen=True)
class ImportanceSampling:
    """The mean of the weighted rewards: unbiased, with a large variance if weights are large.

    V = (1/T) Σ_t u_t r_t; Glover and Hokamp (2019), section 3.3.1. The importance weight
    u_t = π(a_t) / π_t(a_t) is the target policy's probability of the logged action divided by the
    logger's.

    >>> from taskmix.offpolicy import Log, estimate
    >>> log = Log(["a", "b"], [0, 1] * 50, [[0.5, 0.5]] * 100, [0.0, 1.0] * 50)
    >>> estimate(log, {"a": 0.25, "b": 0.75}, method="is").value
    0.75
    """

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        weights = target.chosen / sample.propensities
        return Evidence.of_mean(weights * sample.rewards, weights)


@dataclass(frozen=True)
class ClippedImportanceSampling:
    """Importance sampling with clipped weights: less variance, but some bias.

    V = (1/T) Σ_t min(u_t, M) r_t; Bottou et al. (2013), Ionides (2008), whose rate M = √T is the
    default. The interval does not cover the bias.

    Args:
        clip: the largest weight, M; √T if None.
    """

    clip: float | None = None

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        clip = math.sqrt(len(sample)) if self.clip is None else self.clip
        weights = np.minimum(target.chosen / sample.propensities, clip)
        return Evidence.of_mean(weights * sample.rewards, weights)


@dataclass(frozen=True)
class WeightedImportanceSampling:
    """The weighted mean of the rewards: within their range, with a small bias and less variance.

    V = Σ_t u_t r_t / Σ_t u_t, the self-normalised estimator of Swaminathan and Joachims (2015) with
    which Glover and Hokamp (2019, section 3.3.2) learn their policy. The standard error follows
    from the delta method for a ratio: √Σ u_t² (r_t - V)² / Σ u_t.

    >>> from taskmix.offpolicy import Log, estimate
    >>> log = Log(["a", "b"], [0, 1, 1] * 30, [[0.5, 0.5]] * 90, [0.0, 1.0, 1.0] * 30)
    >>> estimate(log, {"a": 0.5, "b": 0.5}).value.__round__(4)
    0.6667
    """

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        weights = target.chosen / sample.propensities
        value = float(weights @ sample.rewards / weights.sum())
        return Evidence(value, weights * (sample.rewards - value) / weights.mean(), weights)


def task_means(sample: Sample) -> Array:
    """Return the mean reward of each task; the overall mean for a task that was never drawn."""
    drawn = sample.drawn()
    means = np.full(len(drawn), sample.rewards.mean())
    np.divide(sample.by_task(sample.rewards), drawn, out=means, where=drawn > 0)
    return means


@dataclass(frozen=True)
class DirectMethod:
    """The expected reward of the policy under a model of the rewards, without propensities.

    V = (1/T) Σ_t Σ_k π_t(k) r̂(k); the model-based estimator of Dudík, Langford and Li (2011). With
    task means as the model, it equals importance sampling with the observed shares of the tasks as
    propensities, and has the standard error of a stratified mean.

    The mean reward over a task's draws estimates its mean reward over the run only if the task was
    drawn at a constant rate. If the logger learned, or if the policy changes, there is no interval,
    as the value may have a bias of many standard errors; use `DoublyRobust`, which corrects the
    bias by the propensities.

    Args:
        model: learns the reward r̂ of each task from the sample; by default the task's mean.
    """

    model: RewardModel = task_means

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        model = self.model(sample)
        weights = target.shares[sample.actions] * len(sample) / sample.drawn()[sample.actions]
        terms = weights * (sample.rewards - model[sample.actions])
        value = float(target.expected(model).mean())
        return Evidence(value, terms, weights, _bias_of_constant_model(sample, target))


def _bias_of_constant_model(sample: Sample, target: Target) -> str | None:
    if not isinstance(target, Still):
        return "dm takes rewards as constant in time, but the policy changes; use dr"
    least, most = np.full(len(sample.tasks), np.inf), np.zeros(len(sample.tasks))
    np.minimum.at(least, sample.actions, sample.propensities)
    np.maximum.at(most, sample.actions, sample.propensities)
    if np.any(most > MAX_LOGGER_CHANGE * least):
        return "dm takes rewards as constant in time, but the logging policy changed; use dr"
    return None


@dataclass(frozen=True)
class DoublyRobust:
    """The direct method, corrected by the weighted mean of the model's errors.

    V = (1/T) Σ_t [ Σ_k π_t(k) r̂(k) + u_t (r_t - r̂(a_t)) ]; Dudík, Langford and Li (2011). It is
    unbiased if either the model or the propensities are right.

    Args:
        model: learns the reward r̂ of each task from the sample; by default the task's mean.

    >>> from taskmix.offpolicy import Log, estimate
    >>> log = Log(["a", "b"], [0, 1, 1] * 30, [[0.5, 0.5]] * 90, [0.0, 1.0, 1.0] * 30)
    >>> estimate(log, {"a": 0.5, "b": 0.5}, method="dr").value
    0.5
    """

    model: RewardModel = task_means

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        model = self.model(sample)
        weights = target.chosen / sample.propensities
        errors = sample.rewards - model[sample.actions]
        return Evidence.of_mean(target.expected(model) + weights * errors, weights)


@dataclass(frozen=True)
class SelfNormalisedDoublyRobust:
    """Doubly robust with a self-normalised correction, as in weighted importance sampling.

    V = (1/T) Σ_t Σ_k π_t(k) r̂(k) + Σ_t u_t (r_t - r̂(a_t)) / Σ_t u_t; Thomas and Brunskill (2016).

    Args:
        model: learns the reward r̂ of each task from the sample; by default the task's mean.
    """

    model: RewardModel = task_means

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        model = self.model(sample)
        weights = target.chosen / sample.propensities
        errors = sample.rewards - model[sample.actions]
        expected = target.expected(model)
        correction = float(weights @ errors / weights.sum())
        terms = expected - expected.mean() + weights * (errors - correction) / weights.mean()
        return Evidence(float(expected.mean()) + correction, terms, weights)


@dataclass(frozen=True)
class SwitchDoublyRobust:
    """Doubly robust for moderate weights, and only the model for large ones.

    V = (1/T) Σ_t [ Σ_k π_t(k) r̂(k) + u_t 1[u_t ≤ τ] (r_t - r̂(a_t)) ]; Wang, Agarwal and Dudík
    (2017). The interval does not cover the bias of the steps with large weights.

    Args:
        threshold: the largest weight with which the model is corrected, τ; √T if None.
        model: learns the reward r̂ of each task from the sample; by default the task's mean.
    """

    threshold: float | None = None
    model: RewardModel = task_means

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        threshold = math.sqrt(len(sample)) if self.threshold is None else self.threshold
        model = self.model(sample)
        weights = target.chosen / sample.propensities
        trusted = np.where(weights <= threshold, weights, 0.0)
        errors = sample.rewards - model[sample.actions]
        return Evidence.of_mean(target.expected(model) + trusted * errors, weights)
