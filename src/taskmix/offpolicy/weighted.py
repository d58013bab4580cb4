"""Weighted importance sampling."""

from dataclasses import dataclass

from taskmix.offpolicy.evidence import Evidence
from taskmix.offpolicy.pooling import Sample
from taskmix.offpolicy.target import Target


@dataclass(frozen=True)
class WeightedImportanceSampling:
    """The weighted mean of the rewards: never outside their range, and much steadier.

    V = Σ_t u_t r_t / Σ_t u_t, the self-normalised estimator of Swaminathan and Joachims (2015) that
    Glover and Hokamp (2019, section 3.3.2) learn their policy with. Its standard error is that of a
    ratio, by the delta method: √Σ u_t² (r_t - V)² / Σ u_t.

    >>> from taskmix.offpolicy import Log, estimate
    >>> log = Log(["a", "b"], [0, 1, 1] * 30, [[0.5, 0.5]] * 90, [0.0, 1.0, 1.0] * 30)
    >>> estimate(log, {"a": 0.5, "b": 0.5}).value.__round__(4)
    0.6667
    """

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
        weights = target.chosen / sample.propensities
        value = float(weights @ sample.rewards / weights.sum())
        return Evidence(value, weights * (sample.rewards - value) / weights.mean(), weights)
