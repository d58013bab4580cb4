"""What would another policy have earned?"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from bursar.errors import unknown
from bursar.offpolicy.direct import DirectMethod
from bursar.offpolicy.doubly_robust import (
    DoublyRobust,
    SelfNormalisedDoublyRobust,
    SwitchDoublyRobust,
)
from bursar.offpolicy.evidence import Estimator, Evidence
from bursar.offpolicy.importance import ClippedImportanceSampling, ImportanceSampling
from bursar.offpolicy.log import Log
from bursar.offpolicy.pooling import Sample, pooled
from bursar.offpolicy.target import Target, target
from bursar.offpolicy.weighted import WeightedImportanceSampling
from bursar.policies import Policy

METHODS: Mapping[str, Estimator] = {
    "is": ImportanceSampling(),
    "wis": WeightedImportanceSampling(),
    "clipped_is": ClippedImportanceSampling(),
    "dm": DirectMethod(),
    "dr": DoublyRobust(),
    "sndr": SelfNormalisedDoublyRobust(),
    "switch_dr": SwitchDoublyRobust(),
}
#: Below so many effective steps an estimate comes with a warning.
FEW = 50


class SmallSampleWarning(UserWarning):
    """So little of the log speaks about the policy that its estimate may be far off."""


@dataclass(frozen=True)
class Estimate:
    """What a policy would have earned a step, and how sure that is.

    Args:
        value: the estimated mean reward of a step.
        standard_error: of the value.
        interval: where the value lies with the confidence that was asked for.
        effective_sample_size: so many steps of the policy's own would tell as much.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    effective_sample_size: float


def estimate(
    logs: Log | Sequence[Log],
    policy: Policy | Mapping[str, float],
    method: str | Estimator = "wis",
    *,
    pool: str = "own",
    confidence: float = 0.95,
) -> Estimate:
    """What a policy would have earned, from the logs of others.

    Args:
        logs: one log or several with the same tasks.
        policy: a policy, or by task its probability. A `Schedule` is judged by its distribution at
            each logged step, a policy that learns by the one it has now.
        method: `is`, `wis`, `clipped_is`, `dm`, `dr`, `sndr`, `switch_dr`, or an estimator with
            settings of its own, such as `ClippedImportanceSampling(clip=10)`.
        pool: how several logs are weighted: `own`, `balance` or `last`.
        confidence: of the interval.

    >>> log = Log(["a", "b"], [0, 1] * 50, [[0.5, 0.5]] * 100, [0.0, 1.0] * 50)
    >>> result = estimate(log, {"a": 0.25, "b": 0.75})
    >>> result.value, result.effective_sample_size
    (0.75, 80.0)
    """
    sample = pooled(logs, pool)
    seen = target(policy, sample)
    evidence = _estimator(method)(sample, seen)
    _warn_if_small(evidence, seen, sample)
    return summed_up(evidence, sample, confidence)


def summed_up(evidence: Evidence, sample: Sample, confidence: float = 0.95) -> Estimate:
    """An estimate with its uncertainty.

    The interval is Student's, with one degree of freedom less than there are effective steps: with
    few of them the standard error is itself a guess.
    """
    size = evidence.effective_sample_size()
    error = evidence.standard_error(sample.decisions)
    reach = float(stdtrit(max(size - 1, 1.0), (1 + confidence) / 2)) * error
    return Estimate(evidence.value, error, (evidence.value - reach, evidence.value + reach), size)


def _estimator(method: str | Estimator) -> Estimator:
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise unknown("method", method, METHODS, "method")
    return METHODS[method]


def _warn_if_small(evidence: Evidence, seen: Target, sample: Sample) -> None:
    size = evidence.effective_sample_size()
    if size < FEW:
        warnings.warn(
            f"the effective sample size is {size:.1f} of {len(sample)} steps: the log says little "
            "about this policy",
            SmallSampleWarning,
            stacklevel=3,
        )
    unseen = float(seen.shares[sample.drawn() == 0].sum())
    if unseen > 1 / FEW:
        warnings.warn(
            f"{unseen:.0%} of the policy's draws are of tasks that the log never drew",
            SmallSampleWarning,
            stacklevel=3,
        )
