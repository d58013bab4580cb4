"""Estimates of the mean reward of a policy from the logs of others, with intervals."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from taskmix.config import PolicySpec, build_policy
from taskmix.errors import UserError
from taskmix.offpolicy.estimators import (
    ClippedImportanceSampling,
    DirectMethod,
    DoublyRobust,
    Estimator,
    ImportanceSampling,
    SelfNormalisedDoublyRobust,
    SwitchDoublyRobust,
    WeightedImportanceSampling,
)
from taskmix.offpolicy.log import Log
from taskmix.offpolicy.sample import Sample, aligned, by_name, pooled
from taskmix.offpolicy.target import Target, target
from taskmix.policies import Policy

METHODS: Mapping[str, Estimator] = {
    "is": ImportanceSampling(),
    "wis": WeightedImportanceSampling(),
    "clipped_is": ClippedImportanceSampling(),
    "dm": DirectMethod(),
    "dr": DoublyRobust(),
    "sndr": SelfNormalisedDoublyRobust(),
    "switch_dr": SwitchDoublyRobust(),
}
#: With fewer effective decisions there is a warning.
MIN_DECISIONS = 50
#: With fewer there is no interval: none that we tried had its nominal coverage.
MIN_INTERVAL_DECISIONS = 30


class SmallSampleWarning(UserWarning):
    """The effective sample size is too small for a reliable estimate."""


@dataclass(frozen=True)
class Estimate:
    """An estimate of the mean reward of a policy, in the training states of the logs.

    Rewards depend on how far each task has been trained, and a log has only the rewards of its own
    training. With other shares, a policy would reach other states; its reward there is not
    estimated.

    Args:
        value: the estimated mean reward of a step.
        standard_error: the standard error of the value.
        interval: the confidence interval; None if the effective sample is too small, or the method
            has an unknown bias with this log and policy.
        effective_sample_size: the number of decisions by the policy itself that would be as
            informative: that of the importance weights, of their expectation, or of the decisions
            counted by task, whichever is the smallest.
        decisions: the number of decisions in the log, each for one step or a round of steps.
        reason: why there is no interval; None if there is one.
    """

    value: float
    standard_error: float
    interval: tuple[float, float] | None
    effective_sample_size: float
    decisions: int
    reason: str | None = None


def estimate(
    logs: Log | Sequence[Log],
    policy: PolicySpec | Mapping[str, float],
    method: str | Estimator = "wis",
    *,
    pool: str = "own",
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean reward of a policy from the logs of other policies.

    Args:
        logs: one or several logs with the same tasks.
        policy: a policy, or the probability of each task; or, for the logs of journals, its name or
            a mapping of its name and options. A `Schedule` is evaluated at each logged step; a
            policy that learns is replayed on the log.
        method: `is`, `wis`, `clipped_is`, `dm`, `dr`, `sndr`, `switch_dr`, or an estimator, such as
            `ClippedImportanceSampling(clip=10)`.
        pool: the weighting of several logs: `own`, `balance` or `last`; see `improve`.
        confidence: the confidence level of the interval.

    >>> log = Log(["a", "b"], [0, 1] * 50, [[0.5, 0.5]] * 100, [0.0, 1.0] * 50)
    >>> result = estimate(log, {"a": 0.25, "b": 0.75})
    >>> result.value, result.effective_sample_size
    (0.75, 80.0)
    """
    sample = pooled(logs, pool)
    return estimate_target(
        _target(logs, policy, pool, sample), sample, _estimator(method), confidence
    )


def mean_shares(
    logs: Log | Sequence[Log], policy: PolicySpec | Mapping[str, float], pool: str = "own"
) -> dict[str, float]:
    """Return a policy's mean probability of each task over the logged steps."""
    sample = pooled(logs, pool)
    shares = _target(logs, policy, pool, sample).shares
    return dict(zip(sample.tasks, shares.tolist(), strict=True))


def _target(
    logs: Log | Sequence[Log],
    policy: PolicySpec | Mapping[str, float],
    pool: str,
    sample: Sample,
) -> Target:
    ordered = aligned(logs)
    built = _built(policy, ordered[0])
    return target(built, sample, ordered[-1:] if pool == "last" else ordered)


def _built(policy: PolicySpec | Mapping[str, float], log: Log) -> Policy | Mapping[str, float]:
    """Return the policy; one that is named is made as in the run of the log."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str) and not isinstance(policy.get("name"), str):
        return policy  # a probability for each task, one of which may be called `name`
    if log.info is None:
        raise UserError(
            "policy: expected a policy or the probability of each task, because the log knows no"
            f" sizes of tasks, found {policy!r}"
        )
    return build_policy(policy, log.info)


def estimate_target(
    target: Target, sample: Sample, estimator: Estimator, confidence: float = 0.95
) -> Estimate:
    """Return an estimate with Student's interval; warn if the effective sample is small."""
    evidence = estimator(sample, target).by_decision(sample.decisions)
    size = min(
        evidence.effective_sample_size(),
        _size_by_task(target, sample),
        _expected_size(target, sample),
    )
    _warn_if_small(size, target, sample)
    error = evidence.standard_error()
    interval = None
    reason = evidence.bias
    if reason is None and size < MIN_INTERVAL_DECISIONS:
        reason = "too few decisions"
    if reason is None:
        quantile = float(stdtrit(evidence.degrees_of_freedom(), (1 + confidence) / 2))
        interval = (evidence.value - quantile * error, evidence.value + quantile * error)
    return Estimate(evidence.value, error, interval, size, len(evidence.terms), reason)


def _size_by_task(target: Target, sample: Sample) -> float:
    """Return the effective sample size 1 / Σ_k π(k)² / n_k from the decisions for each task."""
    # Unlike importance weights, it shows a task with a large share in the policy that the logger
    # rarely drew by chance.
    return float(1 / np.sum(target.shares**2 / np.maximum(sample.decided(), 1)))


def _expected_size(target: Target, sample: Sample) -> float:
    """Return T / Σ_k π(k)² E[1 / π_t(k)], the expected effective sample size of the weights."""
    # If the logger rarely draws a task that the policy often draws, a log without its few huge
    # weights looks better than it is.
    drawn = target.shares > 0
    square = float(target.shares[drawn] ** 2 @ sample.inverses[drawn])
    return len(np.unique(sample.decisions)) / square if square > 0 else math.inf


def _estimator(method: str | Estimator) -> Estimator:
    return by_name(method, METHODS, "method") if isinstance(method, str) else method


def _warn_if_small(size: float, target: Target, sample: Sample) -> None:
    if size < MIN_DECISIONS:
        too_few = (
            f", too little for an interval (from {MIN_INTERVAL_DECISIONS} on)"
            if size < MIN_INTERVAL_DECISIONS
            else ""
        )
        warnings.warn(
            f"the effective sample size is {size:.1f} (the log has "
            f"{sample.decided().sum()} decisions), below {MIN_DECISIONS}: the log says little "
            f"about this policy{too_few}",
            SmallSampleWarning,
            stacklevel=4,
        )
    unseen = float(target.shares[sample.drawn() == 0].sum())
    if unseen > 1 / MIN_DECISIONS:
        warnings.warn(
            f"{unseen:.0%} of the policy's draws are of tasks that the log never drew",
            SmallSampleWarning,
            stacklevel=4,
        )
