"""Importance sampling, plain and clipped."""

import math
from dataclasses import dataclass

import numpy as np

from taskmix.offpolicy.evidence import Evidence
from taskmix.offpolicy.pooling import Sample
from taskmix.offpolicy.target import Target


@dataclass(frozen=True)
class ImportanceSampling:
    """The mean of the weighted rewards: unbiased, and wild where weights are large.

    V = (1/T) Σ_t u_t r_t with u_t = π(a_t) / π_t(a_t); Glover and Hokamp (2019), section 3.3.1.

    >>> from taskmix.offpolicy import Log, estimate
    >>> log = Log(["a", "b"], [0, 1] * 50, [[0.5, 0.5]] * 100, [0.0, 1.0] * 50)
    >>> estimate(log, {"a": 0.25, "b": 0.75}, method="is").value
    0.75
    """

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
        weights = target.chosen / sample.propensities
        return Evidence.of_mean(weights * sample.rewards, weights)


@dataclass(frozen=True)
class ClippedImportanceSampling:
    """Importance sampling with no weight above a limit: less variance for some bias.

    V = (1/T) Σ_t min(u_t, M) r_t; Bottou and others (2013), Ionides (2008), whose rate M = √T is
    the default. The interval does not cover the bias.

    Args:
        clip: the largest weight, M; √T if None.
    """

    clip: float | None = None

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
        clip = math.sqrt(len(sample)) if self.clip is None else self.clip
        weights = np.minimum(target.chosen / sample.propensities, clip)
        return Evidence.of_mean(weights * sample.rewards, weights)
