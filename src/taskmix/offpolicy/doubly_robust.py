"""Doubly robust estimation: a model, corrected by what it got wrong."""

import math
from dataclasses import dataclass

import numpy as np

from taskmix.offpolicy.direct import RewardModel, task_means
from taskmix.offpolicy.evidence import Evidence
from taskmix.offpolicy.pooling import Sample
from taskmix.offpolicy.target import Target


@dataclass(frozen=True)
class DoublyRobust:
    """The model's value plus the weighted mean of its errors: right if either part is.

    V = (1/T) Σ_t [ Σ_k π_t(k) r̂(k) + u_t (r_t - r̂(a_t)) ]; Dudík, Langford and Li (2011).

    Args:
        model: the reward r̂ of each task, learned from the sample; the task's mean by default.

    >>> from taskmix.offpolicy import Log, estimate
    >>> log = Log(["a", "b"], [0, 1, 1] * 30, [[0.5, 0.5]] * 90, [0.0, 1.0, 1.0] * 30)
    >>> estimate(log, {"a": 0.5, "b": 0.5}, method="dr").value
    0.5
    """

    model: RewardModel = task_means

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
        model = self.model(sample)
        weights = target.chosen / sample.propensities
        errors = sample.rewards - model[sample.actions]
        return Evidence.of_mean(target.expected(model) + weights * errors, weights)


@dataclass(frozen=True)
class SelfNormalisedDoublyRobust:
    """Doubly robust with its correction self-normalised, as weighted importance sampling is.

    V = (1/T) Σ_t Σ_k π_t(k) r̂(k) + Σ_t u_t (r_t - r̂(a_t)) / Σ_t u_t; Thomas and Brunskill (2016).

    Args:
        model: the reward r̂ of each task, learned from the sample; the task's mean by default.
    """

    model: RewardModel = task_means

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
        model = self.model(sample)
        weights = target.chosen / sample.propensities
        errors = sample.rewards - model[sample.actions]
        expected = target.expected(model)
        correction = float(weights @ errors / weights.sum())
        terms = expected - expected.mean() + weights * (errors - correction) / weights.mean()
        return Evidence(float(expected.mean()) + correction, terms, weights)


@dataclass(frozen=True)
class SwitchDoublyRobust:
    """Doubly robust where weights are moderate, the model alone where they are large.

    V = (1/T) Σ_t [ Σ_k π_t(k) r̂(k) + u_t 1[u_t ≤ τ] (r_t - r̂(a_t)) ]; Wang, Agarwal and Dudík
    (2017). The interval does not cover the bias of what is left to the model.

    Args:
        threshold: the largest weight that still corrects, τ; √T if None.
        model: the reward r̂ of each task, learned from the sample; the task's mean by default.
    """

    threshold: float | None = None
    model: RewardModel = task_means

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
        threshold = math.sqrt(len(sample)) if self.threshold is None else self.threshold
        model = self.model(sample)
        weights = target.chosen / sample.propensities
        trusted = np.where(weights <= threshold, weights, 0.0)
        errors = sample.rewards - model[sample.actions]
        return Evidence.of_mean(target.expected(model) + trusted * errors, weights)
