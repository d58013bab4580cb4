"""Stratified draws, whose counts follow a distribution more closely than independent draws."""

import math
from typing import Any

import numpy as np

from taskmix.policies.base import Policy
from taskmix.policies.signals import Draw, Outcome, Signal
from taskmix.policies.state import Array

#: Sums of probabilities that differ by less count as equal.
_ROUNDING = 1e-9
#: Deadlines further ahead are not checked but assumed to be infeasible.
_MAX_HORIZON = 4096


class Stratified(Policy):
    """Draws from another policy so that each task's count stays within one of its expectation.

    Let C_k be the sum of task k's probabilities so far and n_k its draws. With independent draws
    n_k - C_k grows like √t; here it stays strictly between -1 and 1 while the distribution is
    constant.

    The recorded propensities are the policy's probabilities. A draw also depends on the draws
    before it, so the recorded propensity of one step can be off by 0.15; averages over a run are
    right. Use them with estimators that average over a run.

    Args:
        policy: provides the distribution and learns from the outcomes.

    Draws are scheduled as jobs: the j-th draw of task k may be made once C_k exceeds j - 1 and must
    be made before C_k exceeds j. Scheduling the earliest deadline first meets all deadlines (the
    chairman assignment problem, Tijdeman 1980). At each step a task is drawn at random, with
    weights proportional to the part of each task's current job that falls into this step. If this
    draw would make a deadline infeasible, the task with the earliest deadline is drawn instead.

    If the distribution changes, no task is ever more than one draw ahead, and none is behind by
    more than the harmonic number H_N ≤ 1 + ln N: once a task is one draw behind, the task furthest
    behind is drawn (the cup-emptying game with N cups). Both bounds assume that no probability
    drops to 0, as the missing draws of such a task have to wait.

    >>> import taskmix
    >>> from taskmix.rng import stream
    >>> policy, rng = Stratified(taskmix.TaskSize({"rte": 1, "sst2": 3})), stream(1, "draws")
    >>> sorted(policy.ask(rng).task for _ in range(8))
    ['rte', 'rte', 'sst2', 'sst2', 'sst2', 'sst2', 'sst2', 'sst2']
    >>> policy.probabilities().tolist()
    [0.25, 0.75]
    """

    name = "stratified"
    _saved = ("_asked", "policy")

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.tasks)
        if type(policy)._choose is not Policy._choose:
            raise ValueError(
                "policy: expected one with independent draws,"
                f" found {policy.name}, which draws by its own rule"
            )
        if policy.draws > 0:
            raise ValueError(f"policy: expected one without draws yet, found {policy.draws}")
        self.policy = policy
        self.needs = policy.needs
        self._asked = np.zeros(len(self.tasks))

    def probabilities(self) -> Array:
        return self.policy.probabilities()

    def _choose(self, probabilities: Array, rng: np.random.Generator) -> int:
        asked = self._asked + probabilities
        behind = np.where(probabilities > 0, asked - self._drawn, -np.inf)
        furthest = int(behind.argmax())
        if behind[furthest] >= 1 - _ROUNDING or behind[furthest] <= _ROUNDING:
            return furthest
        index = _random_task(behind, probabilities, rng)
        lead = self._drawn - asked
        lead[index] += 1
        if _can_be_met(lead, probabilities):
            return index
        return int(_deadlines(behind, probabilities).argmin())

    def _take(self, index: int, probabilities: Array) -> Draw:
        self._asked += probabilities
        self._drawn[index] += 1
        self._draws += 1
        return self.policy.replay(index)

    def due(self, draw: Draw) -> frozenset[Signal]:
        return self.policy.due(draw)

    def tell(self, outcome: Outcome) -> None:
        self.policy.tell(outcome)

    def diagnostics(self) -> dict[str, Any]:
        return self.policy.diagnostics()


def _random_task(behind: Array, probabilities: Array, rng: np.random.Generator) -> int:
    # The part of a task's job that falls into this step, over the part that remains.
    current = np.minimum(behind, probabilities)
    remaining = 1 - np.maximum(behind - probabilities, 0.0)
    cumulative = np.where(behind > _ROUNDING, current / remaining, 0.0).cumsum()
    return int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))


def _deadlines(behind: Array, probabilities: Array) -> Array:
    """Return the steps until each task is one draw behind; infinite if it may not be drawn yet."""
    allowed = behind > _ROUNDING
    steps = np.full(len(behind), np.inf)
    steps[allowed] = np.ceil((1 - behind[allowed]) / probabilities[allowed] - _ROUNDING)
    return steps


def _can_be_met(lead: Array, probabilities: Array) -> bool:
    """Return whether all deadlines can be met with constant probabilities; `lead` is n_k - C_k."""
    # They can if, for every s, at most s of them are within the next s steps. It is enough to check
    # until C_k has caught up with every task that is ahead now.
    ahead = lead > _ROUNDING
    if np.count_nonzero(ahead) < 2:
        return True
    horizon = math.ceil((lead[ahead] / probabilities[ahead]).max())
    if horizon > _MAX_HORIZON:
        return False
    jobs = np.maximum(horizon * probabilities - lead + _ROUNDING, 0).astype(np.int64)
    task = np.arange(len(jobs)).repeat(jobs)
    order = np.arange(1, len(task) + 1)
    number = order - (jobs.cumsum() - jobs)[task]
    deadlines = np.ceil((lead[task] + number) / probabilities[task] - _ROUNDING)
    deadlines.sort()
    return bool((deadlines >= order).all())
