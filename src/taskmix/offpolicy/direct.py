"""The direct method."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskmix.offpolicy.evidence import Evidence
from taskmix.offpolicy.pooling import Sample
from taskmix.offpolicy.target import Target

#: A reward for each task, shape `(tasks,)`, learned from a sample.
RewardModel = Callable[[Sample], NDArray[np.float64]]


def task_means(sample: Sample) -> NDArray[np.float64]:
    """Return the mean reward of each task; of all draws for a task that was never drawn."""
    drawn = sample.drawn()
    sums = sample.by_task(sample.rewards)
    means = np.full(len(drawn), sample.rewards.mean())
    np.divide(sums, drawn, out=means, where=drawn > 0)
    return means


@dataclass(frozen=True)
class DirectMethod:
    """What a model of the rewards says the policy would earn; propensities play no part.

    V = (1/T) Σ_t Σ_k π_t(k) r̂(k); the model-based estimator of Dudík, Langford and Li (2011). With
    task means as the model it is importance sampling by the shares drawn in fact, and its standard
    error is that of a stratified mean.

    Args:
        model: the reward r̂ of each task, learned from the sample; the task's mean by default.
    """

    model: RewardModel = task_means

    def __call__(self, sample: Sample, target: Target) -> Evidence:
        """The value with what each step contributes to it."""
        model = self.model(sample)
        weights = target.shares[sample.actions] * len(sample) / sample.drawn()[sample.actions]
        terms = weights * (sample.rewards - model[sample.actions])
        return Evidence(float(target.expected(model).mean()), terms, weights)
