"""Several logs as one sample."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError, unknown
from taskmix.offpolicy.log import Log


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws with the probability that each is to be weighted by.

    Args:
        tasks: the names of the tasks.
        actions: the task drawn at each step, shape `(steps,)`.
        propensities: with what probability it was drawn, shape `(steps,)`.
        rewards: what the step earned, shape `(steps,)`.
        positions: how many steps of the same run came before, shape `(steps,)`.
        exposures: how many draws of the same task came before in the same run, shape `(steps,)`.
        decisions: the same number where one draw held for several steps, shape `(steps,)`.
        supported: which tasks the loggers could have drawn, so that they can be judged,
            shape `(tasks,)`.
    """

    tasks: tuple[str, ...]
    actions: NDArray[np.int64]
    propensities: NDArray[np.float64]
    rewards: NDArray[np.float64]
    positions: NDArray[np.int64]
    exposures: NDArray[np.int64]
    decisions: NDArray[np.int64]
    supported: NDArray[np.bool_]

    def __len__(self) -> int:
        """How many steps there are."""
        return len(self.actions)

    def drawn(self) -> NDArray[np.int64]:
        """Return how often each task was drawn, shape `(tasks,)`."""
        return np.bincount(self.actions, minlength=len(self.tasks))

    def decided(self) -> NDArray[np.int64]:
        """Return how many decisions were for each task, shape `(tasks,)`."""
        pairs = np.unique(self.decisions * len(self.tasks) + self.actions)
        return np.bincount(pairs % len(self.tasks), minlength=len(self.tasks))

    def by_task(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the steps' values for each task, shape `(tasks,)`."""
        return np.bincount(self.actions, values, len(self.tasks)).astype(np.float64)

    def part(self, which: NDArray[np.bool_]) -> "Sample":
        """Return the steps that are marked, shape `(steps,)`."""
        each = ("actions", "propensities", "rewards", "positions", "exposures", "decisions")
        return replace(self, **{name: getattr(self, name)[which] for name in each})

    def only(self, tasks: NDArray[np.bool_]) -> "Sample":
        """Return the draws of the marked tasks, as if there were no others, shape `(tasks,)`."""
        kept = np.flatnonzero(tasks)
        part = self.part(tasks[self.actions])
        return replace(
            part,
            tasks=tuple(self.tasks[k] for k in kept),
            actions=np.searchsorted(kept, part.actions),
            supported=self.supported[kept],
        )


Pool = Callable[[Sequence[Log]], Sample]


def own(logs: Sequence[Log]) -> Sample:
    """Return all logs, each draw weighted by the probability that its own logger gave it."""
    supported = np.logical_and.reduce([log.always for log in logs])
    return _joined(logs, np.concatenate([log.propensities for log in logs]), supported)


def balance(logs: Sequence[Log]) -> Sample:
    """Return all logs, each draw weighted by the mixture of all loggers: the balance heuristic.

    Agarwal, Basu, Schnabel and Joachims (2017): q(k) = Σ_t π_t(k) / n over the n steps of all
    logs. Less variance than own propensities where one logger hardly drew what another often did;
    it takes a reward to depend on the task alone, not on when and by whom it was drawn.
    """
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
    return _joined(logs, mixture[actions], mixture > 0)


def last(logs: Sequence[Log]) -> Sample:
    """Return the newest log alone, weighted by its own propensities."""
    return own(logs[-1:])


POOLS: Mapping[str, Pool] = {"own": own, "balance": balance, "last": last}


def pooled(logs: Log | Sequence[Log], pool: str) -> Sample:
    """One log or several as one sample; tasks are matched by name, in the first log's order."""
    if pool not in POOLS:
        raise unknown("pool", pool, POOLS, "pool")
    return POOLS[pool](aligned(logs))


def aligned(logs: Log | Sequence[Log]) -> list[Log]:
    """Return the logs, all with the tasks in the first one's order."""
    several = [logs] if isinstance(logs, Log) else list(logs)
    if not several:
        raise UserError("logs: expected at least one, found none")
    return [log.reordered(several[0].tasks) for log in several]


def _joined(
    logs: Sequence[Log], propensities: NDArray[np.float64], supported: NDArray[np.bool_]
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
    )


def _exposures(actions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many times the same action came before, shape `(steps,)`."""
    order = np.argsort(actions, kind="stable")
    exposures = np.empty(len(actions), dtype=np.int64)
    exposures[order] = np.arange(len(actions)) - np.searchsorted(actions[order], actions[order])
    return exposures
