"""The policy in question, as the estimators see it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from bursar.errors import UserError
from bursar.offpolicy.pooling import Sample
from bursar.policies import Annealed, Cycle, Fixed, Policy, Schedule, Stratified

#: Policies that change by plan, whatever the outcomes: judged by where they are at each step.
PLANNED = (Schedule, Annealed, Cycle)


class Target(ABC):
    """What a policy would have done at the steps of a sample."""

    @property
    @abstractmethod
    def chosen(self) -> NDArray[np.float64]:
        """The policy's probability of each logged action, shape `(steps,)`."""

    @property
    @abstractmethod
    def shares(self) -> NDArray[np.float64]:
        """The policy's mean distribution over the steps, shape `(tasks,)`."""

    @abstractmethod
    def expected(self, model: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ_k π_t(k) r̂(k) at each step for rewards r̂ of shape `(tasks,)`; shape `(steps,)`."""


class Still(Target):
    """A policy whose distribution does not change."""

    def __init__(self, probabilities: NDArray[np.float64], sample: Sample) -> None:
        self._probabilities = probabilities
        self._actions = sample.actions

    @property
    def chosen(self) -> NDArray[np.float64]:
        """The probability of each logged action."""
        return self._probabilities[self._actions]

    @property
    def shares(self) -> NDArray[np.float64]:
        """The distribution itself."""
        return self._probabilities

    def expected(self, model: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same value at every step."""
        return np.full(len(self._actions), self._probabilities @ model)


class Moving(Target):
    """A policy whose distribution changes by plan: at each step the one it has by then."""

    def __init__(self, policy: Policy, sample: Sample) -> None:
        self._policy = deepcopy(policy)
        self._order = [policy.tasks.index(task) for task in sample.tasks]
        times, self._time = np.unique(sample.positions, return_inverse=True)
        self._times = times.tolist()
        self._weights = np.bincount(self._time) / len(sample)
        self._actions = sample.actions

    def _rows(self) -> Iterator[NDArray[np.float64]]:
        """The distribution at each different time, in turn: all at once may not fit in memory."""
        state = self._policy.state_dict()
        for time in self._times:
            drawn = [0] * len(self._order)
            drawn[0] = time
            self._policy.load_state_dict(state | {"drawn": drawn})
            yield self._policy.probabilities()[self._order]

    @property
    def chosen(self) -> NDArray[np.float64]:
        """The probability of each logged action at its time."""
        chosen = np.empty(len(self._actions))
        order = np.argsort(self._time, kind="stable")
        steps = np.split(order, np.cumsum(np.bincount(self._time))[:-1])
        for row, at in zip(self._rows(), steps, strict=True):
            chosen[at] = row[self._actions[at]]
        return chosen

    @property
    def shares(self) -> NDArray[np.float64]:
        """The mean over the logged times."""
        shares = np.zeros(len(self._order))
        for row, weight in zip(self._rows(), self._weights, strict=True):
            shares += weight * row
        return shares

    def expected(self, model: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value by the distribution at each step's time."""
        return np.array([row @ model for row in self._rows()])[self._time]


def target(policy: Policy | Mapping[str, float], sample: Sample) -> Target:
    """The policy at the sample's steps; refuses one that the loggers have no support for."""
    if not isinstance(policy, Policy):
        try:
            policy = Fixed(policy)
        except ValueError as error:
            raise UserError(f"policy: {error}") from None
    if isinstance(policy, Stratified):
        policy = policy.policy
    if set(policy.tasks) != set(sample.tasks):
        raise UserError(
            f"policy: expected the tasks of the log, {list(sample.tasks)}, found "
            f"{list(policy.tasks)}"
        )
    seen: Target
    if isinstance(policy, PLANNED):
        seen = Moving(policy, sample)
    else:
        order = [policy.tasks.index(task) for task in sample.tasks]
        seen = Still(policy.probabilities()[order], sample)
    _check_support(seen.shares, sample)
    return seen


def _check_support(shares: NDArray[np.float64], sample: Sample) -> None:
    bare = (shares > 0) & ~sample.supported
    if np.any(bare):
        names = [sample.tasks[k] for k in np.flatnonzero(bare)]
        raise UserError(
            f"policy: expected probability 0 where the log has no support, found "
            f"{shares[bare].sum():.3g} on {_listed(names)}, which could not be drawn at every "
            "step; a log teaches only about policies that do what its own might have done"
        )
    if not np.any(shares[sample.actions] > 0):
        raise UserError("policy: expected some task that the log drew, found it drew none of them")


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
