"""Several logs, pooled into one sample of weighted draws."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError, unknown
from taskmix.offpolicy.log import Log
from taskmix.policies.state import Array
from taskmix.rng import stream

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Sample:
    """The draws of one or several logs, with the propensities for their weights.

    Args:
        tasks: the names of the tasks.
        actions: the task drawn at each step, shape `(steps,)`.
        propensities: the probability of that task, shape `(steps,)`.
        rewards: the reward of each step, shape `(steps,)`.
        positions: the number of earlier steps in the same run, shape `(steps,)`.
        exposures: the number of earlier draws of the same task in the same run, shape `(steps,)`.
        decisions: a number for each step, equal for the steps of one decision, shape `(steps,)`.
        supported: which tasks the loggers could draw at every step, shape `(tasks,)`.
        inverses: the mean of the inverse propensity of each task over the steps, shape `(tasks,)`.
    """

    tasks: tuple[str, ...]
    actions: NDArray[np.int64]
    propensities: Array
    rewards: Array
    positions: NDArray[np.int64]
    exposures: NDArray[np.int64]
    decisions: NDArray[np.int64]
    supported: NDArray[np.bool_]
    inverses: Array

    def __len__(self) -> int:
        return len(self.actions)

    def drawn(self) -> NDArray[np.int64]:
        """Return how often each task was drawn, shape `(tasks,)`."""
        return np.bincount(self.actions, minlength=len(self.tasks))

    def decided(self) -> NDArray[np.int64]:
        """Return how many decisions chose each task, shape `(tasks,)`."""
        pairs = np.unique(self.decisions * len(self.tasks) + self.actions)
        return np.bincount(pairs % len(self.tasks), minlength=len(self.tasks))

    def by_task(self, values: Array) -> Array:
        """Sum the values of the steps for each task, shape `(tasks,)`."""
        return np.bincount(self.actions, values, len(self.tasks)).astype(np.float64)

    def part(self, steps: NDArray[np.bool_]) -> "Sample":
        """Return the steps that are marked, shape `(steps,)`."""
        arrays = ("actions", "propensities", "rewards", "positions", "exposures", "decisions")
        return replace(self, **{name: getattr(self, name)[steps] for name in arrays})

    def only(self, tasks: NDArray[np.bool_]) -> "Sample":
        """Return the draws of the marked tasks, without the other tasks, shape `(tasks,)`."""
        kept = np.flatnonzero(tasks)
        part = self.part(tasks[self.actions])
        return replace(
            part,
            tasks=tuple(self.tasks[k] for k in kept),
            actions=np.searchsorted(kept, part.actions),
            supported=self.supported[kept],
            inverses=self.inverses[kept],
        )


Pool = Callable[[Sequence[Log]], Sample]


def own(logs: Sequence[Log]) -> Sample:
    """Pool all logs; the propensity of a draw is that of its logger."""
    supported = np.logical_and.reduce([log.always for log in logs])
    sums = np.sum([len(log) * log.mean_inverse() for log in logs], axis=0)
    inverses = sums / sum(map(len, logs))
    propensities = np.concatenate([log.propensities for log in logs])
    return _joined(logs, propensities, supported, inverses)


def balance(logs: Sequence[Log]) -> Sample:
    """Pool all logs by the balance heuristic: propensities are those of the mixture of loggers."""
    # Agarwal, Basu, Schnabel and Joachims (2017): q(k) = Σ_t π_t(k) / n over the n steps of all
    # logs. It has less variance than `own` if the loggers differ much, but assumes that a reward
    # depends only on the task, not on the step or the logger.
    mixture = np.zeros(len(logs[0].tasks))
    for number, log in enumerate(logs, 1):
        if log.course is None:
            raise UserError(
                f"logs, number {number}: expected full distributions for pool='balance', found "
                "only the propensities of the draws"
            )
        mixture += log.course.mean(len(log)) * len(log)
    mixture /= sum(len(log) for log in logs)
    actions = np.concatenate([log.actions for log in logs])
    with np.errstate(divide="ignore"):
        return _joined(logs, mixture[actions], mixture > 0, 1 / mixture)


def last(logs: Sequence[Log]) -> Sample:
    return own(logs[-1:])


POOLS: Mapping[str, Pool] = {"own": own, "balance": balance, "last": last}


def pooled(logs: Log | Sequence[Log], pool: str) -> Sample:
    """Pool one or several logs, with the tasks in the order of the first."""
    return by_name(pool, POOLS, "pool")(aligned(logs))


def by_name(name: str, choices: Mapping[str, T], what: str) -> T:
    if name not in choices:
        raise unknown(what, name, choices, what)
    return choices[name]


def aligned(logs: Log | Sequence[Log]) -> list[Log]:
    """Return the logs, all with the tasks in the order of the first."""
    logs = [logs] if isinstance(logs, Log) else list(logs)
    if not logs:
        raise UserError("logs: expected at least one, found none")
    return [log.reordered(logs[0].tasks) for log in logs]


def _joined(
    logs: Sequence[Log], propensities: Array, supported: NDArray[np.bool_], inverses: Array
) -> Sample:
    firsts = np.cumsum([0, *(log.decisions.max() + 1 for log in logs[:-1])])
    return Sample(
        logs[0].tasks,
        np.concatenate([log.actions for log in logs]),
        propensities,
        np.concatenate([log.rewards for log in logs]),
        np.concatenate([np.arange(len(log)) for log in logs]),
        np.concatenate([_exposures(log.actions) for log in logs]),
        np.concatenate([log.decisions + first for log, first in zip(logs, firsts, strict=True)]),
        supported,
        inverses,
    )


def _exposures(actions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of earlier steps with the same action, shape `(steps,)`."""
    order = np.argsort(actions, kind="stable")
    exposures = np.empty(len(actions), dtype=np.int64)
    exposures[order] = np.arange(len(actions)) - np.searchsorted(actions[order], actions[order])
    return exposures


def folds_of(decisions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the fold of each step, 0 to `count` - 1, the same for all steps of a decision.

    >>> folds_of(np.array([0, 0, 1, 2, 3]), 2).tolist()
    [0, 0, 1, 1, 0]
    """
    # Each fold has one of every `count` successive decisions, so that all folds cover the run. It
    # is a random one, so that no fold follows the period of a cyclic policy.
    names, number = np.unique(decisions, return_inverse=True)
    turns = -(-len(names) // count)
    ranks = stream(0, "folds", count, len(names)).random((turns, count)).argsort(axis=1)
    folds: NDArray[np.int64] = ranks.ravel()[number]
    return folds
