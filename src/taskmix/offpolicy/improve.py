"""Learning a better policy from logs."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.offpolicy.entropy_weight import chosen_entropy_weight, closeness
from taskmix.offpolicy.estimate import Estimate, estimate_target
from taskmix.offpolicy.estimators import WeightedImportanceSampling
from taskmix.offpolicy.log import Log
from taskmix.offpolicy.phases import phase_distributions
from taskmix.offpolicy.sample import Sample, by_name, folds_of, pooled
from taskmix.offpolicy.solvers import Evolution, Exact, Solver, Totals
from taskmix.offpolicy.target import Moving, Still, Target
from taskmix.policies import Fixed, Schedule
from taskmix.policies.state import Array

SOLVERS: Mapping[str, Solver] = {"exact": Exact(), "cmaes": Evolution()}
#: The folds of cross-fitting.
FOLDS = 5


class FarPolicyWarning(UserWarning):
    """The policy differs so much from the logging policy that the logged rewards may mislead."""


def improve(
    logs: Log | Sequence[Log],
    entropy_weight: float | Literal["auto"] = "auto",
    solver: str | Solver = "exact",
    pool: str = "own",
    phases: int = 1,
) -> Fixed | Schedule:
    """Learn the policy with the largest estimated reward, regularised by its entropy.

    The counterfactual policy of Glover and Hokamp (2019, section 3.3.2): the distribution p that
    maximises V(p) + λ H(p), where V is the weighted importance sampling estimate and H the entropy.
    A task that the logger could draw but never drew counts as average; a task that the logger could
    not draw gets probability 0. If all tasks have the same mean reward, the result is uniform.

    Args:
        logs: one or several logs with the same tasks, oldest first.
        entropy_weight: λ, in units of the reward; `auto` chooses it from the logs. A
            `FarPolicyWarning` says if the policy differs more from the loggers than `auto` allows.
        solver: `exact`, or the paper's `cmaes`, or a solver such as `Evolution(seed=1)`.
        pool: how several logs are weighted: by the propensity of each draw's logger (`own`), by the
            mixture of all loggers (`balance`), or only the newest log is used (`last`).
        phases: the number of phases; with more than one, the result is a `Schedule`.

    >>> log = Log(["cola", "rte"], [0, 1] * 50, [[0.5, 0.5]] * 100, [0.2, 0.4] * 50)
    >>> improve(log, 0.5).probabilities().round(4).tolist()
    [0.4013, 0.5987]
    """
    shares = improved_shares(logs, entropy_weight, solver, pool, phases)
    if phases == 1:
        return Fixed(shares[0])
    return Schedule(shares, len(logs) if isinstance(logs, Log) else max(map(len, logs)))


def improved_shares(
    logs: Log | Sequence[Log],
    entropy_weight: float | Literal["auto"] = "auto",
    solver: str | Solver = "exact",
    pool: str = "own",
    phases: int = 1,
) -> list[dict[str, float]]:
    """Return the probability of each task in each phase of the policy that `improve` learns."""
    learner = _Learner(entropy_weight, _solver(solver), phases)
    sample = pooled(logs, pool)
    if entropy_weight != "auto":
        _warn_if_far(_learnable(sample), learner, entropy_weight)
    return [dict(zip(sample.tasks, row.tolist(), strict=True)) for row in learner.learn(sample)]


def estimate_improved(
    logs: Log | Sequence[Log],
    entropy_weight: float | Literal["auto"] = "auto",
    solver: str | Solver = "exact",
    pool: str = "own",
    phases: int = 1,
    *,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean reward of the policy that `improve` learns, by cross-fitting.

    The estimate from the log that a policy was learned from is too high, as the policy fits the
    noise of that log. So the log is split into five folds, and each fold evaluates the policy
    learned from the other four, by weighted importance sampling over all folds. As these policies
    are learned from a fifth less data, the estimate tends to be too low.

    The arguments are those of `improve` and the confidence level of the interval. `auto` chooses a
    λ for each fold.
    """
    learner = _Learner(entropy_weight, _solver(solver), phases)
    sample = pooled(logs, pool)
    return estimate_target(
        _CrossFitted(sample, learner), sample, WeightedImportanceSampling(), confidence
    )


def entropy_weight(
    logs: Log | Sequence[Log],
    solver: str | Solver = "exact",
    pool: str = "own",
    phases: int = 1,
) -> float:
    """Return the λ that `improve` uses for `auto`; the arguments are those of `improve`."""
    return _Learner("auto", _solver(solver), phases).weight(_learnable(pooled(logs, pool)))


@dataclass(frozen=True)
class _Learner:
    entropy_weight: float | Literal["auto"]
    solve: Solver
    phases: int

    def __post_init__(self) -> None:
        if self.phases < 1:
            raise UserError(f"phases: expected at least 1, found {self.phases}")
        if self.entropy_weight != "auto" and not self.entropy_weight >= 0:
            raise UserError(
                f"entropy_weight: expected 'auto' or at least 0, found {self.entropy_weight}"
            )

    def learn(self, sample: Sample) -> Array:
        """Return the distribution of each phase, shape `(phases, tasks)`."""
        supported = _learnable(sample)
        rows = np.zeros((self.phases, len(sample.tasks)))
        rows[:, sample.supported] = self._phases(supported, self.weight(supported))
        return rows

    def weight(self, supported: Sample) -> float:
        if self.entropy_weight == "auto":
            return chosen_entropy_weight(supported, self.mean)
        return self.entropy_weight

    def mean(self, supported: Sample, weight: float) -> Array:
        """Return the mean distribution over the phases, shape `(tasks,)`."""
        return np.asarray(self._phases(supported, weight).mean(axis=0))

    def _phases(self, supported: Sample, weight: float) -> Array:
        if self.phases == 1:
            return self.solve(Totals.of(supported), weight)[None]
        return phase_distributions(supported, weight, self.solve, self.phases)

    def target(self, rows: Array, sample: Sample, steps: int) -> Target:
        if self.phases == 1:
            return Still(rows[0], sample)
        phases = [dict(zip(sample.tasks, row.tolist(), strict=True)) for row in rows]
        return Moving(Schedule(phases, steps), sample)


class _CrossFitted(Target):
    """At each step, the policy that was learned from the other folds."""

    def __init__(self, sample: Sample, learner: _Learner) -> None:
        folds = folds_of(sample.decisions, FOLDS)
        steps = int(sample.positions.max()) + 1
        self.chosen = np.empty(len(sample))
        self.shares = np.zeros(len(sample.tasks))
        self._targets: list[tuple[NDArray[np.bool_], Target]] = []
        for fold in np.unique(folds):
            held_out = folds == fold
            # A log with a single decision has a single fold.
            rest = sample.part(~held_out) if not held_out.all() else sample
            target = learner.target(learner.learn(rest), sample.part(held_out), steps)
            self._targets.append((held_out, target))
            self.chosen[held_out] = target.chosen
            self.shares += target.shares * held_out.mean()

    def expected(self, model: Array) -> Array:
        expected = np.empty(len(self.chosen))
        for held_out, target in self._targets:
            expected[held_out] = target.expected(model)
        return expected


def _warn_if_far(supported: Sample, learner: _Learner, weight: float) -> None:
    share = closeness(supported, learner.mean, weight)
    if share < 1:
        warnings.warn(
            f"entropy_weight {weight:g} reduces the effective sample size to {share:.0%} of the "
            "least that 'auto' allows: the policy differs so much from the log's that its rewards "
            "may differ from the logged ones; use 'auto' or a larger weight",
            FarPolicyWarning,
            stacklevel=4,
        )


def _learnable(sample: Sample) -> Sample:
    """Return the draws of the tasks that could be drawn at every step."""
    if not np.any(sample.supported):
        raise UserError(
            "logs: expected some task that could be drawn at every step, found none; a log of "
            "deterministic draws (a cycle) supports other policies only with pool='balance'"
        )
    supported = sample.only(sample.supported)
    if len(supported) == 0:
        raise UserError(
            "logs: expected draws of tasks that could be drawn at every step, found none"
        )
    return supported


def _solver(solver: str | Solver) -> Solver:
    return by_name(solver, SOLVERS, "solver") if isinstance(solver, str) else solver
