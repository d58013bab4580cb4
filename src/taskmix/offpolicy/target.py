"""The policy in question, as the estimators see it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.offpolicy.log import Log
from taskmix.offpolicy.pooling import Sample
from taskmix.policies import Annealed, Cycle, Fixed, Outcome, Policy, Schedule, Stratified
from taskmix.policies.signals import Gain, Loss, Signal

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
        """Return the same value at every step."""
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
        """Return the value by the distribution at each step's time."""
        return np.array([row @ model for row in self._rows()])[self._time]


class Replayed(Target):
    """A policy that learns: at each step the distribution it has after watching the log so far.

    It is told every outcome as it was logged, with the propensity that the logger drew it with, so
    that what the policy learns does not depend on who drew. Each log is watched from the start.
    """

    def __init__(self, policy: Policy, logs: Sequence[Log]) -> None:
        self._policy = policy
        self._logs = logs
        self._order = [policy.tasks.index(task) for task in logs[0].tasks]
        actions = np.concatenate([log.actions for log in logs])
        self._chosen = np.empty(len(actions))
        self._shares = np.zeros(len(self._order))
        for step, row in enumerate(self._rows()):
            self._chosen[step] = row[actions[step]]
            self._shares += row / len(actions)

    def _rows(self) -> Iterator[NDArray[np.float64]]:
        """Yield the distribution before each step, in turn: all at once may not fit in memory."""
        for log in self._logs:
            policy = deepcopy(self._policy)
            steps = zip(log.actions, log.propensities, log.losses, log.gains, strict=True)
            for action, propensity, loss, gain in steps:
                yield policy.probabilities()[self._order]
                index = self._order[action]
                draw = policy.replay(index)
                logged = draw.probabilities.copy()
                logged[index] = propensity
                draw = replace(draw, probabilities=logged)
                policy.tell(Outcome(draw, loss=_known(loss), gain=_known(gain)))

    @property
    def chosen(self) -> NDArray[np.float64]:
        """The probability of each logged action before its step."""
        return self._chosen

    @property
    def shares(self) -> NDArray[np.float64]:
        """The mean over the logged steps."""
        return self._shares

    def expected(self, model: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value by the distribution before each step."""
        return np.array([row @ model for row in self._rows()])


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def target(policy: Policy | Mapping[str, float], sample: Sample, logs: Sequence[Log]) -> Target:
    """Return the policy at the sample's steps; refuses one that the loggers have no support for.

    Args:
        policy: a policy, or by task its probability.
        sample: of the logs.
        logs: the same steps in the same order, for policies that learn.
    """
    seen = _seen(_same_tasks(policy, sample), sample, logs)
    _check_support(seen.shares, sample)
    return seen


def _same_tasks(policy: Policy | Mapping[str, float], sample: Sample) -> Policy:
    """Return the policy, if it is about the sample's tasks."""
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
    return policy


def _seen(policy: Policy, sample: Sample, logs: Sequence[Log]) -> Target:
    if isinstance(policy, PLANNED):
        return Moving(policy, sample)
    if type(policy).tell is not Policy.tell:
        _check_outcomes(policy, logs)
        return Replayed(policy, logs)
    order = [policy.tasks.index(task) for task in sample.tasks]
    return Still(policy.probabilities()[order], sample)


def _check_outcomes(policy: Policy, logs: Sequence[Log]) -> None:
    """Refuse a policy that learns from what the logs do not hold."""
    held: set[type[Signal]] = set()
    if all(np.isfinite(log.losses).any() for log in logs):
        held.add(Loss)
    if all(np.isfinite(log.gains).any() for log in logs):
        held.add(Gain)
    needed = {type(signal) for signal in policy.needs} or {Loss}
    if needed <= held:
        return
    missing = sorted(signal.__name__ for signal in needed - held)
    raise UserError(
        f"policy: expected one that does not learn or learns from what the log holds, found "
        f"{policy.name}, which needs {' and '.join(missing)}; run it to see what it earns"
    )


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
