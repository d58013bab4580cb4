"""What would another policy have earned?"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from taskmix.errors import unknown
from taskmix.offpolicy.direct import DirectMethod
from taskmix.offpolicy.doubly_robust import (
    DoublyRobust,
    SelfNormalisedDoublyRobust,
    SwitchDoublyRobust,
)
from taskmix.offpolicy.evidence import Estimator
from taskmix.offpolicy.importance import ClippedImportanceSampling, ImportanceSampling
from taskmix.offpolicy.log import Log
from taskmix.offpolicy.pooling import Sample, aligned, pooled
from taskmix.offpolicy.target import Target, target
from taskmix.offpolicy.weighted import WeightedImportanceSampling
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
#: With fewer effective decisions an estimate comes with a warning.
FEW = 50
#: With fewer there is no interval: none was found that covers what it promises.
FEWEST = 30


class SmallSampleWarning(UserWarning):
    """So little of the log speaks about the policy that its estimate may be far off."""


@dataclass(frozen=True)
class Estimate:
    """What a policy would have earned a step at the states that the log visited.

    Rewards depend on how far each task has been trained. A log knows them where its own training
    was; a policy of other shares comes to other states in a training of its own, and what it earns
    there is not estimated here.

    Args:
        value: the estimated mean reward of a step.
        standard_error: of the value.
        interval: where the value lies with the confidence that was asked for; None where the log
            says too little for one.
        effective_sample_size: so many decisions of the policy's own would tell as much.
        decisions: how many there are in the log; each holds for one step, or for a round of them.
    """

    value: float
    standard_error: float
    interval: tuple[float, float] | None
    effective_sample_size: float
    decisions: int


def estimate(
    logs: Log | Sequence[Log],
    policy: Policy | Mapping[str, float],
    method: str | Estimator = "wis",
    *,
    pool: str = "own",
    confidence: float = 0.95,
) -> Estimate:
    """Return what a policy would have earned at the states that the logs of others visited.

    Args:
        logs: one log or several with the same tasks.
        policy: a policy, or by task its probability. A `Schedule` is judged by its distribution at
            each logged step; a policy that learns watches the log, and is judged by the
            distribution that it has come to at each step.
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
    return summed_up(_target(logs, policy, pool, sample), sample, _estimator(method), confidence)


def mean_shares(
    logs: Log | Sequence[Log], policy: Policy | Mapping[str, float], pool: str = "own"
) -> dict[str, float]:
    """Return by task, its mean probability over the logged steps."""
    sample = pooled(logs, pool)
    shares = _target(logs, policy, pool, sample).shares
    return dict(zip(sample.tasks, shares.tolist(), strict=True))


def _target(
    logs: Log | Sequence[Log], policy: Policy | Mapping[str, float], pool: str, sample: Sample
) -> Target:
    several = aligned(logs)
    return target(policy, sample, several[-1:] if pool == "last" else several)


def summed_up(
    seen: Target, sample: Sample, estimator: Estimator, confidence: float = 0.95
) -> Estimate:
    """Return an estimate with its uncertainty, and a warning where the sample says little.

    The interval is Student's, with as many degrees of freedom as the standard error rests on: with
    few of them it is itself a guess.
    """
    evidence = estimator(sample, seen).by_decision(sample.decisions)
    size = evidence.effective_sample_size()
    by_task = _size_by_task(seen, sample)
    _warn_if_small(size, by_task, seen, sample)
    error = evidence.standard_error()
    interval = None
    if min(size, by_task) >= FEWEST:
        quantile = float(stdtrit(evidence.degrees_of_freedom(), (1 + confidence) / 2))
        interval = (evidence.value - quantile * error, evidence.value + quantile * error)
    return Estimate(evidence.value, error, interval, size, len(evidence.terms))


def _size_by_task(seen: Target, sample: Sample) -> float:
    """Return the effective sample size by the decisions in fact: 1 / Σ_k π(k)² / n_k.

    It shows a task with a large share in the policy of which the log, by chance, holds next to
    nothing; importance weights do not.
    """
    return float(1 / np.sum(seen.shares**2 / np.maximum(sample.decided(), 1)))


def _estimator(method: str | Estimator) -> Estimator:
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise unknown("method", method, METHODS, "method")
    return METHODS[method]


def _warn_if_small(size: float, by_task: float, seen: Target, sample: Sample) -> None:
    least = min(size, by_task)
    if least < FEW:
        counted = "" if size < FEW else "counted by task, "
        too_few = f", too little for an interval (from {FEWEST} on)" if least < FEWEST else ""
        warnings.warn(
            f"{counted}the effective sample size is {least:.1f} of {sample.decided().sum()} "
            f"decisions: the log says little about this policy{too_few}",
            SmallSampleWarning,
            stacklevel=4,
        )
    unseen = float(seen.shares[sample.drawn() == 0].sum())
    if unseen > 1 / FEW:
        warnings.warn(
            f"{unseen:.0%} of the policy's draws are of tasks that the log never drew",
            SmallSampleWarning,
            stacklevel=4,
        )
