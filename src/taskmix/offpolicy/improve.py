"""A better policy from what was logged."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError, unknown
from taskmix.offpolicy.entropy_weight import chosen_entropy_weight, closeness
from taskmix.offpolicy.estimate import Estimate, summed_up
from taskmix.offpolicy.evolution import Evolution
from taskmix.offpolicy.exact import Exact
from taskmix.offpolicy.folds import folds_of
from taskmix.offpolicy.log import Log
from taskmix.offpolicy.objective import Solver, Totals
from taskmix.offpolicy.plan import planned
from taskmix.offpolicy.pooling import Sample, pooled
from taskmix.offpolicy.target import Moving, Still, Target
from taskmix.offpolicy.weighted import WeightedImportanceSampling
from taskmix.policies import Fixed, Schedule

SOLVERS: Mapping[str, Solver] = {"exact": Exact(), "cmaes": Evolution()}
#: Parts of the log that judge what was learned from the rest.
FOLDS = 5


class FarPolicyWarning(UserWarning):
    """The policy leaves what the log knows: its rewards may be others there."""


def improve(
    logs: Log | Sequence[Log],
    entropy_weight: float | Literal["auto"] = "auto",
    solver: str | Solver = "exact",
    pool: str = "own",
    phases: int = 1,
) -> Fixed | Schedule:
    """The policy that would have earned most by these logs, kept from betting all on one task.

    The counterfactual policy of Glover and Hokamp (2019, section 3.3.2): the distribution p that
    maximises V(p) + λ H(p), where V is the weighted importance sampling estimate and H the entropy.
    A task that was never drawn though it could have been counts as one of average worth; one that
    could not be drawn gets probability 0. Where all tasks earned the same, the answer is uniform.

    Args:
        logs: one log or several with the same tasks, oldest first.
        entropy_weight: λ, in units of the reward; `auto` chooses it from the logs. One so small
            that the policy goes further from the loggers than `auto` would brings a
            `FarPolicyWarning`.
        solver: `exact`, or the paper's `cmaes`, or one with settings of its own.
        pool: how several logs are weighted: each draw by its own logger's propensity (`own`), by
            the mixture of all loggers (`balance`), or the newest log alone (`last`).
        phases: more than one gives a `Schedule` that changes in the course of training.

    >>> log = Log(["cola", "rte"], [0, 1] * 50, [[0.5, 0.5]] * 100, [0.2, 0.4] * 50)
    >>> improve(log, 0.5).probabilities().round(4).tolist()
    [0.4013, 0.5987]
    """
    shares = improved_shares(logs, entropy_weight, solver, pool, phases)
    if phases == 1:
        return Fixed(shares[0])
    several = [logs] if isinstance(logs, Log) else logs
    return Schedule(shares, max(len(log) for log in several))


def improved_shares(
    logs: Log | Sequence[Log],
    entropy_weight: float | Literal["auto"] = "auto",
    solver: str | Solver = "exact",
    pool: str = "own",
    phases: int = 1,
) -> list[dict[str, float]]:
    """Return by task its probability, for each phase of the policy that `improve` returns."""
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
    """What the policy that `improve` learns would have earned, by draws that it did not learn from.

    A policy looks too good on the log that it was fitted to: it also learned that log's noise. So
    the log is cut in five, and each part judges the policy that the same settings learn from the
    other four, by weighted importance sampling over all of them. Learned from a fifth less, these
    policies are, if anything, a little worse than the one from the whole log.

    Args:
        logs: one log or several with the same tasks, oldest first.
        entropy_weight: as `improve` takes it; `auto` chooses anew from each four parts.
        solver: likewise.
        pool: likewise.
        phases: likewise.
        confidence: of the interval.
    """
    learner = _Learner(entropy_weight, _solver(solver), phases)
    sample = pooled(logs, pool)
    return summed_up(
        _CrossFitted(sample, learner), sample, WeightedImportanceSampling(), confidence
    )


def entropy_weight(
    logs: Log | Sequence[Log],
    solver: str | Solver = "exact",
    pool: str = "own",
    phases: int = 1,
) -> float:
    """Return the λ that `improve` takes for `auto`."""
    return _Learner("auto", _solver(solver), phases).weight(_learnable(pooled(logs, pool)))


@dataclass(frozen=True)
class _Learner:
    """The settings of an improvement, as far as they do not concern the logs.

    Args:
        entropy_weight: λ, or `auto`.
        solve: finds the distribution that maximises V + λH.
        phases: how many distributions to learn.
    """

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

    def learn(self, sample: Sample) -> NDArray[np.float64]:
        """Return a distribution over the sample's tasks for each phase, shape `(phases, tasks)`."""
        known = _learnable(sample)
        rows = np.zeros((self.phases, len(sample.tasks)))
        rows[:, sample.supported] = self._phases(known, self.weight(known))
        return rows

    def weight(self, known: Sample) -> float:
        """λ."""
        if self.entropy_weight == "auto":
            return chosen_entropy_weight(known, self.mean)
        return self.entropy_weight

    def mean(self, known: Sample, weight: float) -> NDArray[np.float64]:
        """The mean distribution over a run of what is learned with this λ, shape `(tasks,)`."""
        mean: NDArray[np.float64] = self._phases(known, weight).mean(axis=0)
        return mean

    def _phases(self, known: Sample, weight: float) -> NDArray[np.float64]:
        if self.phases == 1:
            return self.solve(Totals.of(known), weight)[None]
        return planned(known, weight, self.solve, self.phases)

    def seen(self, rows: NDArray[np.float64], sample: Sample, steps: int) -> Target:
        """Return what the learned policy would have done at the steps of a sample."""
        if self.phases == 1:
            return Still(rows[0], sample)
        phases = [dict(zip(sample.tasks, row.tolist(), strict=True)) for row in rows]
        return Moving(Schedule(phases, steps), sample)


class _CrossFitted(Target):
    """At each step the policy that was learned from the other folds."""

    def __init__(self, sample: Sample, learner: _Learner) -> None:
        folds = folds_of(sample.decisions, FOLDS)
        steps = int(sample.positions.max()) + 1
        self._chosen = np.empty(len(sample))
        self._shares = np.zeros(len(sample.tasks))
        self._seen = []
        for fold in np.unique(folds):
            judged = folds == fold
            # One fold only, which is all of the log, where there is but one decision.
            rest = sample.part(~judged) if not judged.all() else sample
            seen = learner.seen(learner.learn(rest), sample.part(judged), steps)
            self._seen.append((judged, seen))
            self._chosen[judged] = seen.chosen
            self._shares += seen.shares * judged.mean()

    @property
    def chosen(self) -> NDArray[np.float64]:
        """The probability of each logged action by the policy of its fold."""
        return self._chosen

    @property
    def shares(self) -> NDArray[np.float64]:
        """The mean over the steps."""
        return self._shares

    def expected(self, model: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value by the policy of each step's fold."""
        expected = np.empty(len(self._chosen))
        for judged, seen in self._seen:
            expected[judged] = seen.expected(model)
        return expected


def _warn_if_far(known: Sample, learner: _Learner, weight: float) -> None:
    share = closeness(known, learner.mean, weight)
    if share < 1:
        warnings.warn(
            f"entropy_weight {weight:g} takes the effective sample size to {share:.0%} of the "
            "least that 'auto' allows: the policy moves so far from the log's that rewards may be "
            "others there; 'auto' or a larger weight stays closer",
            FarPolicyWarning,
            stacklevel=4,
        )


def _learnable(sample: Sample) -> Sample:
    """The sample on the tasks that could be drawn all along; refuses one that had no choice."""
    if not np.any(sample.supported):
        raise UserError(
            "logs: expected some task that could be drawn at every step, found none; a log of "
            "certain draws (a cycle) supports no other policy, except by pool='balance'"
        )
    known = sample.only(sample.supported)
    if len(known) == 0:
        raise UserError(
            "logs: expected draws of tasks that could be drawn at every step, found none"
        )
    return known


def _solver(solver: str | Solver) -> Solver:
    if not isinstance(solver, str):
        return solver
    if solver not in SOLVERS:
        raise unknown("solver", solver, SOLVERS, "solver")
    return SOLVERS[solver]
