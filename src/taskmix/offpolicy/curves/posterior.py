"""The posterior distribution of the tasks' learning curves, given the scores of several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, ndtri

from taskmix.offpolicy.curves.scored_run import RATE_POWERS, Measure, ScoredRun
from taskmix.offpolicy.curves.shapes import Shapes
from taskmix.policies.state import Array
from taskmix.rng import stream

#: Candidates for the standard deviation of a score, relative to that of a proportion of the dev
#: examples.
NOISES = 2.0 ** np.arange(-2.0, 2.5, 0.5)
#: Candidates for the mean height over tasks, and the deviation of the heights around it.
MEAN_HEIGHTS, HEIGHT_DEVIATION = (0.2, 0.4, 0.7), 0.3
#: The prior mean and standard deviation of the score before training.
LEVEL, LEVEL_DEVIATION = 0.5, 0.5
#: The prior standard deviation of that score around the majority-class baseline, if this is known.
BASELINE_DEVIATION = 0.2
#: The prior standard deviation of the bias of free scores, which dropout lowers.
FREE_DEVIATION = 0.05
#: The part of the pooled prior over shapes that stays flat, and the rounds in which it is pooled.
FLAT, POOLING_ROUNDS = 0.5, 3
#: The variance between runs at the same training, relative to the variance of one score.
RUN_VARIANCE = 1.0
#: Dev examples where a journal does not tell.
UNKNOWN_DEV = 100.0
SCALES = 60
DRAWS = 1000


@dataclass(frozen=True, eq=False)
class CurveSample:
    """Draws from the posterior of one task's curve, level + height · rise(training).

    Args:
        level: the value before training, shape `(draws,)`.
        height: the gain by endless training, shape `(draws,)`.
        shapes: of the rise, as many.
        power: the index in `RATE_POWERS` by which steps are weighted, shape `(draws,)`.
        noise: the standard deviation of a score relative to that of a proportion, `(draws,)`.
        dev: dev examples of an evaluation.
        unit: the range of the values, 1 for scores.
    """

    level: Array
    height: Array
    shapes: Shapes
    power: NDArray[np.int64]
    noise: Array
    dev: float
    unit: float

    def at(self, training: Array) -> Array:
        """Return the curve without noise, shape `(draws, points)`.

        Args:
            training: under each of the `RATE_POWERS`, shape `(powers, points)`.
        """
        rise = self.shapes.rise(training[self.power])
        curve: Array = self.level[:, None] + self.height[:, None] * rise
        return curve

    def scores(self, training: Array, rng: np.random.Generator) -> Array:
        """Return scores of other runs after this training, `(powers, 1)`, shape `(draws,)`."""
        curve = self.at(training)[:, 0]
        error = self.deviation(curve) * rng.standard_normal(len(curve))
        noisy: Array = curve + np.sqrt(1 + RUN_VARIANCE) * error
        return noisy

    def deviation(self, values: Array) -> Array:
        """Return the standard deviation of one score around a run's own mean, shape `(draws,)`."""
        deviation: Array = self.noise * deviations_of(values, self.dev, self.unit)
        return deviation


def deviations_of(values: Array, dev: Array | float, unit: float) -> Array:
    """Return the standard deviation of a proportion, with one more hit and one more miss."""
    # A loss has no such deviation; that of the proportion one half is a scale like any other, and
    # the noise relative to it is fitted.
    proportion = np.clip(values, 0.0, 1.0) if unit == 1.0 else np.full_like(values, 0.5)
    smoothed = (proportion * dev + 1) / (dev + 2)
    deviation: Array = unit * np.sqrt(smoothed * (1 - smoothed) / dev)
    return deviation


@dataclass(frozen=True, eq=False)
class _Cells:
    """The posterior of level, height and the bias of free scores, for each shape and noise."""

    evidence: Array  # the log likelihood of the scores, (shapes, noises)
    means: Array  # (shapes, noises, 3)
    covariances: Array  # (shapes, noises, 3, 3)

    def by_shape(self, prior: Array) -> Array:
        """Return the log of prior times likelihood of each shape, shape `(shapes,)`."""
        logs: Array = logsumexp(self.evidence, axis=1) - np.log(len(NOISES)) + np.log(prior)
        return logs


@dataclass(frozen=True, eq=False)
class _Candidate:
    """The posterior under one weighting of the steps and one prior that the tasks share."""

    power: int
    shape_prior: Array  # (shapes,)
    tasks: Sequence[_Cells]

    @property
    def evidence(self) -> float:
        """The log likelihood of the scores of all tasks."""
        return sum(float(logsumexp(cells.by_shape(self.shape_prior))) for cells in self.tasks)


class LearningCurves:
    """The learning curves of several tasks, as far as the scores of runs tell them.

    The score of a task after the effective training x is level + height · rise(x), with a rise from
    `Shapes`, plus normal noise; the scores of batches have a bias in common. For each shape and
    noise on a grid, the posterior of level, height and bias is normal and has a closed form; the
    grid is weighted by the likelihood of the scores.

    The tasks share their priors by empirical Bayes: the prior over shapes is in part the mean of
    the tasks' posteriors, and the mean of the heights is weighted by the likelihood of all scores,
    as is the power of the learning rate by which steps count. So a task whose score has not risen
    yet is uncertain in the way that the other tasks suggest: it may begin later, or have little to
    learn.

    Args:
        runs: of the same tasks.
        families: the names in `FAMILIES` of the shapes; all if None.
        seed: of the draws.
    """

    def __init__(
        self, runs: Sequence[ScoredRun], families: Sequence[str] | None = None, seed: int = 0
    ) -> None:
        self.tasks = runs[0].tasks
        self.runs = [run.reordered(self.tasks) for run in runs]
        self.measure: Measure = runs[0].measure
        self.unit = 1.0
        if self.measure == "loss":
            self.unit = max(float(np.ptp(run.values, axis=0).max()) for run in self.runs) or 1.0
        dev = np.max([np.nan_to_num(run.dev) for run in self.runs], axis=0)
        self.dev = np.where(dev > 0, dev, UNKNOWN_DEV)
        known = {task: value for run in self.runs for task, value in run.baselines.items()}
        self.baselines: Array = np.array([known.get(task, np.nan) for task in self.tasks])
        most = max(run.schedule.steps * run.schedule.batch for run in self.runs)
        least = min(run.schedule.batch for run in self.runs)
        self.shapes = Shapes.grid(np.geomspace(least, 10 * most, SCALES), families)
        self.candidates = [
            self._candidate(power, mean)
            for power, mean in product(range(len(RATE_POWERS)), MEAN_HEIGHTS)
        ]
        evidence = np.array([candidate.evidence for candidate in self.candidates])
        self.evidence = float(logsumexp(evidence) - np.log(len(evidence)))
        weights = np.exp(evidence - logsumexp(evidence))
        # A draw is of one candidate for all tasks.
        chosen = stream(seed, "curves").choice(len(weights), DRAWS, p=weights)
        self.samples = [self._sample(k, chosen, seed) for k in range(len(self.tasks))]

    def _candidate(self, power: int, mean: float) -> _Candidate:
        tasks = [self._cells(k, power, mean) for k in range(len(self.tasks))]
        flat = prior = self.shapes.prior()
        for _ in range(POOLING_ROUNDS):
            logs = np.array([cells.by_shape(prior) for cells in tasks])
            posteriors = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
            prior = FLAT * flat + (1 - FLAT) * posteriors.mean(axis=0)
        return _Candidate(power, prior, tasks)

    def _cells(self, k: int, power: int, mean: float) -> _Cells:
        """Return the posterior of a task's linear parameters, given each shape and noise."""
        task = self.tasks[k]
        free = [run.free[task] for run in self.runs if task in run.free]
        evaluated = np.concatenate([run.values[:, k] for run in self.runs])
        scores = np.concatenate([evaluated, *(windows.values for windows in free)])
        sizes = [np.full(len(evaluated), self.dev[k]), *(windows.examples for windows in free)]
        deviations = deviations_of(scores, np.concatenate(sizes), self.unit)
        training = [run.training[power, :, k] for run in self.runs]
        training += [windows.training[power] for windows in free]
        rises = self.shapes.rise(np.concatenate(training))
        bias = np.broadcast_to(np.arange(len(scores)) >= len(evaluated), rises.shape)
        design = np.stack([np.ones_like(rises), rises, bias], axis=1) / deviations
        values = scores / deviations
        prior_mean, prior = self._linear_prior(k, mean)
        # A model that predicts one class has the same score again and again, which tells nothing of
        # the noise of later scores: there the noise is that of a proportion.
        idle = np.zeros(len(scores), dtype=np.bool_)
        idle[: len(evaluated)] = np.concatenate([run.idle(task) for run in self.runs])
        weights = np.where(idle, 1.0, (NOISES**-2.0)[:, None])  # (noises, scores)
        precisions = np.einsum("sip,np,sjp->snij", design, weights, design, optimize=True) + prior
        covariances = np.asarray(np.linalg.inv(precisions), dtype=np.float64)
        products = np.einsum("sip,np->sni", design, weights * values, optimize=True)
        products += prior @ prior_mean
        means = np.einsum("snij,snj->sni", covariances, products)
        misfit = (
            weights @ values**2
            + prior_mean @ prior @ prior_mean
            - np.einsum("sni,sni->sn", means, products)
        )
        evidence = (
            -0.5 * (misfit + np.linalg.slogdet(precisions)[1] - np.linalg.slogdet(prior)[1])
            - (~idle).sum() * np.log(NOISES)
            - 0.5 * len(values) * np.log(2 * np.pi)
            - np.log(deviations).sum()
        )
        # Only a part of the normal distribution of the heights is possible.
        low, high = self._height_limits(k, means, covariances)
        evidence += np.log(np.maximum(ndtr(high) - ndtr(low), np.finfo(float).tiny))
        return _Cells(evidence, means, covariances)

    def _linear_prior(self, k: int, mean: float) -> tuple[Array, Array]:
        """Return the prior mean of level, height and bias, and its precision matrix."""
        level, deviation = LEVEL, LEVEL_DEVIATION
        if self.measure == "loss":
            level = float(self.runs[0].values[0, k])
        elif not np.isnan(self.baselines[k]):
            level, deviation = float(self.baselines[k]), BASELINE_DEVIATION
        spreads = self.unit * np.array([deviation, HEIGHT_DEVIATION, FREE_DEVIATION])
        return np.array([level, mean * self.unit, 0.0]), np.diag(spreads**-2.0)

    def _height_limits(self, k: int, means: Array, covariances: Array) -> tuple[Array, Array]:
        """Return the lowest and the highest height, in standard deviations from its mean."""
        deviations = np.sqrt(covariances[..., 1, 1])
        at_most_one = self.measure == "score" and all(
            run.values[:, k].max() <= 1 for run in self.runs
        )
        highest = 1.0 - means[..., 0] if at_most_one else np.inf
        return -means[..., 1] / deviations, (highest - means[..., 1]) / deviations

    def _sample(self, k: int, chosen: NDArray[np.int64], seed: int) -> CurveSample:
        rng = stream(seed, "curves", self.tasks[k])
        shape, noise = np.zeros((2, DRAWS), dtype=np.int64)
        means, covariances = np.zeros((DRAWS, 3)), np.zeros((DRAWS, 3, 3))
        for number, candidate in enumerate(self.candidates):
            rows = np.flatnonzero(chosen == number)
            cells = candidate.tasks[k]
            logs = cells.evidence + np.log(candidate.shape_prior)[:, None]
            weights = np.exp(logs - logsumexp(logs))
            cell = rng.choice(weights.size, len(rows), p=weights.ravel() / weights.sum())
            shape[rows], noise[rows] = np.unravel_index(cell, weights.shape)
            means[rows] = cells.means[shape[rows], noise[rows]]
            covariances[rows] = cells.covariances[shape[rows], noise[rows]]
        low, high = (ndtr(limit) for limit in self._height_limits(k, means, covariances))
        error = ndtri(np.clip(low + (high - low) * rng.uniform(size=DRAWS), 1e-12, 1 - 1e-12))
        deviation = np.sqrt(covariances[:, 1, 1])
        slope = covariances[:, 0, 1] / deviation  # of the level, by the error of the height
        rest = np.sqrt(np.maximum(covariances[:, 0, 0] - slope**2, 0.0))
        powers = np.array([candidate.power for candidate in self.candidates])
        return CurveSample(
            means[:, 0] + slope * error + rest * rng.standard_normal(DRAWS),
            means[:, 1] + deviation * error,
            self.shapes[shape],
            powers[chosen],
            NOISES[noise],
            float(self.dev[k]),
            self.unit,
        )
