"""The target policy of an estimate: its distribution at every logged step."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np

from taskmix.errors import UserError
from taskmix.offpolicy.log import Log
from taskmix.offpolicy.sample import Sample
from taskmix.policies import Annealed, Cycle, Fixed, Policy, Schedule, Stratified
from taskmix.policies.signals import Gain, Loss, Rewards, Signal
from taskmix.policies.state import Array

#: Policies whose distribution depends only on the step.
SCHEDULED = (Schedule, Annealed, Cycle)
#: The measurements that a log needs for a signal.
_MEASUREMENTS: Mapping[type[Signal], tuple[str, ...]] = {
    Loss: ("loss",),
    Gain: ("gain",),
    Rewards: ("reward", "advantage"),
}


class Target(ABC):
    """A policy's distribution at each step of a sample."""

    chosen: Array  # the policy's probability of each logged action, shape `(steps,)`
    shares: Array  # the policy's mean distribution over the steps, shape `(tasks,)`

    @abstractmethod
    def expected(self, model: Array) -> Array:
        """Σ_k π_t(k) r̂(k) at each step for rewards r̂ of shape `(tasks,)`; shape `(steps,)`."""


class Still(Target):
    """A policy whose distribution does not change."""

    def __init__(self, probabilities: Array, sample: Sample) -> None:
        self.chosen = probabilities[sample.actions]
        self.shares = probabilities

    def expected(self, model: Array) -> Array:
        return np.full(len(self.chosen), self.shares @ model)


class Moving(Target):
    """A policy whose distribution depends on the step."""

    def __init__(self, policy: Policy, sample: Sample) -> None:
        self._policy = deepcopy(policy)
        self._order = [policy.tasks.index(task) for task in sample.tasks]
        times, self._time = np.unique(sample.positions, return_inverse=True)
        self._times = times.tolist()
        self.chosen = np.empty(len(sample))
        self.shares = np.zeros(len(sample.tasks))
        counts = np.bincount(self._time)
        steps = np.split(np.argsort(self._time, kind="stable"), np.cumsum(counts)[:-1])
        for row, at in zip(self._rows(), steps, strict=True):
            self.chosen[at] = row[sample.actions[at]]
            self.shares += row * (len(at) / len(sample))

    def _rows(self) -> Iterator[Array]:
        """Yield the distribution at each different step; all of them may not fit in memory."""
        state = self._policy.state_dict()
        for time in self._times:
            drawn = [0] * len(self._order)
            drawn[0] = time
            self._policy.load_state_dict(state | {"drawn": drawn})
            yield self._policy.probabilities()[self._order]

    def expected(self, model: Array) -> Array:
        return np.array([row @ model for row in self._rows()])[self._time]


class Replayed(Target):
    """A policy that learns, replayed on the logs."""

    # It is told every outcome with the logger's propensity, so that its importance weights are
    # right. For each log it starts anew.

    def __init__(self, policy: Policy, logs: Sequence[Log]) -> None:
        self._policy = policy
        self._logs = logs
        self._order = [policy.tasks.index(task) for task in logs[0].tasks]
        actions = np.concatenate([log.actions for log in logs])
        self.chosen = np.empty(len(actions))
        self.shares = np.zeros(len(self._order))
        for step, row in enumerate(self._rows()):
            self.chosen[step] = row[actions[step]]
            self.shares += row / len(actions)

    def _rows(self) -> Iterator[Array]:
        """Yield the distribution before each step; all of them may not fit in memory."""
        for log in self._logs:
            policy = deepcopy(self._policy)
            for step, action in enumerate(log.actions):
                yield policy.probabilities()[self._order]
                index = self._order[action]
                draw = policy.replay(index)
                logged = draw.probabilities.copy()
                logged[index] = log.propensities[step]
                policy.tell(log.outcome(step, replace(draw, probabilities=logged)))

    def expected(self, model: Array) -> Array:
        return np.array([row @ model for row in self._rows()])


def target(policy: Policy | Mapping[str, float], sample: Sample, logs: Sequence[Log]) -> Target:
    """Return the policy at the steps of a sample; raise `UserError` if the logs lack support."""
    result = _target(_with_tasks(policy, sample), sample, logs)
    _check_support(result.shares, sample)
    return result


def _with_tasks(policy: Policy | Mapping[str, float], sample: Sample) -> Policy:
    """Return the policy, which must have the tasks of the sample."""
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


def _target(policy: Policy, sample: Sample, logs: Sequence[Log]) -> Target:
    if isinstance(policy, SCHEDULED):
        return Moving(policy, sample)
    if type(policy).tell is not Policy.tell:
        _check_outcomes(policy, logs)
        return Replayed(policy, logs)
    order = [policy.tasks.index(task) for task in sample.tasks]
    return Still(policy.probabilities()[order], sample)


def _check_outcomes(policy: Policy, logs: Sequence[Log]) -> None:
    logged = {
        signal
        for signal, names in _MEASUREMENTS.items()
        if all(log.has(name) for log in logs for name in names)
    }
    needed = {type(signal) for signal in policy.needs} or {Loss}
    if needed <= logged:
        return
    missing = sorted(signal.__name__ for signal in needed - logged)
    raise UserError(
        f"policy: expected one that does not learn or learns from what the log holds, found "
        f"{policy.name}, which needs {' and '.join(missing)}; run it to see what it earns"
    )


def _check_support(shares: Array, sample: Sample) -> None:
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
