"""A better policy from what was logged."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bursar.errors import UserError, unknown
from bursar.offpolicy.entropy_weight import chosen_entropy_weight
from bursar.offpolicy.evolution import Evolution
from bursar.offpolicy.exact import Exact
from bursar.offpolicy.log import Log
from bursar.offpolicy.objective import Solver, Totals
from bursar.offpolicy.plan import planned
from bursar.offpolicy.pooling import Sample, pooled
from bursar.policies import Fixed, Schedule

SOLVERS: Mapping[str, Solver] = {"exact": Exact(), "cmaes": Evolution()}


def improve(
    logs: Log | Sequence[Log],
    entropy_weight: float | Literal["auto"] = 0.25,
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
        entropy_weight: λ, in units of the reward; `auto` chooses it from the logs.
        solver: `exact`, or the paper's `cmaes`, or one with settings of its own.
        pool: how several logs are weighted: each draw by its own logger's propensity (`own`), by
            the mixture of all loggers (`balance`), or the newest log alone (`last`).
        phases: more than one gives a `Schedule` that changes in the course of training.

    >>> log = Log(["cola", "rte"], [0, 1] * 50, [[0.5, 0.5]] * 100, [0.2, 0.4] * 50)
    >>> improve(log).probabilities().round(4).tolist()
    [0.31, 0.69]
    """
    shares = improved_shares(logs, entropy_weight, solver, pool, phases)
    if phases == 1:
        return Fixed(shares[0])
    several = [logs] if isinstance(logs, Log) else logs
    return Schedule(shares, max(len(log) for log in several))


def improved_shares(
    logs: Log | Sequence[Log],
    entropy_weight: float | Literal["auto"] = 0.25,
    solver: str | Solver = "exact",
    pool: str = "own",
    phases: int = 1,
) -> list[dict[str, float]]:
    """By task its probability, for each phase of the policy that `improve` returns."""
    if phases < 1:
        raise UserError(f"phases: expected at least 1, found {phases}")
    sample = pooled(logs, pool)
    known = _learnable(sample)
    solve = _solver(solver)
    weight = chosen_entropy_weight(known, solve) if entropy_weight == "auto" else entropy_weight
    if not weight >= 0:
        raise UserError(f"entropy_weight: expected 'auto' or at least 0, found {weight}")
    if phases == 1:
        return [_by_task(sample, solve(Totals.of(known), weight))]
    return [_by_task(sample, row) for row in planned(known, weight, solve, phases)]


def entropy_weight(
    logs: Log | Sequence[Log], solver: str | Solver = "exact", pool: str = "own"
) -> float:
    """The λ that `improve` takes for `auto`."""
    return chosen_entropy_weight(_learnable(pooled(logs, pool)), _solver(solver))


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


def _by_task(sample: Sample, probabilities: NDArray[np.float64]) -> dict[str, float]:
    """Probabilities of the supported tasks by name, and 0 for the others."""
    everyone = np.zeros(len(sample.tasks))
    everyone[sample.supported] = probabilities
    return dict(zip(sample.tasks, everyone.tolist(), strict=True))
