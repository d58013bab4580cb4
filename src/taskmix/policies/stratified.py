"""Draws that keep to their distribution more closely than chance would."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Draw, Outcome, Policy
from taskmix.policies.signals import Signal

# Sums of probabilities that differ by less count as equal.
_ROUNDING = 1e-9
# Beyond so many draws ahead, feasibility is not looked into but taken on the safe side.
_HORIZON = 4096


class Stratified(Policy):
    """Draws another policy's tasks so that each count stays within one of what was asked.

    With C_k the sum of task k's probabilities so far and n_k its draws, independent draws let
    n_k - C_k wander off like √t; here it stays strictly between -1 and 1 while the distribution
    stays, for any number of tasks. Draws are jobs: the j-th draw of task k may be made from the
    moment C_k exceeds j - 1 and must be made before it exceeds j. Taking the earliest deadline
    first always meets them all (the chairman assignment problem, Tijdeman 1980). To leave as much
    as can be to chance, a task is first drawn at random, by the part of its job that falls to this
    step of what remains of it; if some deadline could not be met after it, the earliest is taken.

    What is learned online may change the distribution at every step. Then no task is ever more
    than one ahead, and none falls behind by more than the harmonic number H_N ≤ 1 + ln N: once a
    task is one behind, the furthest behind is drawn, and that is the emptying game with N cups.
    Both hold as long as no probability drops to zero, for then what a task is owed has to wait.

    Propensities are those of the policy. They are right over a run, where counts keep to them, but
    only roughly for a single step: the first draw follows its distribution exactly, a later one was
    found up to 0.15 off over many seeds, because what is owed to whom is decided by the draws
    before. An estimator that averages over a run is served; one that trusts each step is not.

    Args:
        policy: says the distribution and learns from the outcomes.

    >>> import taskmix
    >>> from taskmix.rng import stream
    >>> policy, rng = Stratified(taskmix.TaskSize({"rte": 1, "sst2": 3})), stream(1, "draws")
    >>> sorted(policy.ask(rng).task for _ in range(8))
    ['rte', 'rte', 'sst2', 'sst2', 'sst2', 'sst2', 'sst2', 'sst2']
    >>> policy.probabilities().tolist()
    [0.25, 0.75]
    """

    name = "stratified"

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.tasks)
        if type(policy)._choose is not Policy._choose:
            raise ValueError(
                "policy: expected one whose draws are independent,"
                f" found {policy.name}, which has a rule of its own"
            )
        if policy.draws > 0:
            raise ValueError(f"policy: expected one without draws yet, found {policy.draws}")
        self.policy = policy
        self.needs = policy.needs
        self._asked = np.zeros(len(self.tasks))

    def probabilities(self) -> NDArray[np.float64]:
        """Return the policy's own."""
        return self.policy.probabilities()

    def _choose(self, probabilities: NDArray[np.float64], rng: np.random.Generator) -> int:
        asked = self._asked + probabilities
        behind = np.where(probabilities > 0, asked - self._drawn, -np.inf)
        furthest = int(behind.argmax())
        if behind[furthest] >= 1 - _ROUNDING or behind[furthest] <= _ROUNDING:
            return furthest
        index = self._at_random(behind, probabilities, rng)
        lead = self._drawn - asked
        lead[index] += 1
        if _can_be_met(lead, probabilities):
            return index
        return int(_deadlines(behind, probabilities).argmin())

    def _at_random(
        self,
        behind: NDArray[np.float64],
        probabilities: NDArray[np.float64],
        rng: np.random.Generator,
    ) -> int:
        # Of the task's next job, what falls to this step and what remains of it before this step.
        now = np.minimum(behind, probabilities)
        remaining = 1 - np.maximum(behind - probabilities, 0.0)
        cumulative = np.where(behind > _ROUNDING, now / remaining, 0.0).cumsum()
        point = rng.random() * cumulative[-1]
        return int(cumulative.searchsorted(point, side="right"))

    def _take(self, index: int, probabilities: NDArray[np.float64]) -> Draw:
        self._asked += probabilities
        self._drawn[index] += 1
        self._draws += 1
        return self.policy.replay(index)

    def due(self, draw: Draw) -> frozenset[Signal]:
        """Return what the policy has due."""
        return self.policy.due(draw)

    def tell(self, outcome: Outcome) -> None:
        """Let the policy learn."""
        self.policy.tell(outcome)

    def diagnostics(self) -> dict[str, Any]:
        """Return what the policy believes."""
        return self.policy.diagnostics()

    def _state(self) -> dict[str, Any]:
        return {"asked": self._asked.tolist(), "policy": self.policy.state_dict()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._asked = np.array(state["asked"], dtype=np.float64)
        self.policy.load_state_dict(state["policy"])


def _deadlines(
    behind: NDArray[np.float64], probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """In how many steps each task will be one behind; never for those that may not be drawn."""
    may = behind > _ROUNDING
    steps = np.full(len(behind), np.inf)
    steps[may] = np.ceil((1 - behind[may]) / probabilities[may] - _ROUNDING)
    return steps


def _can_be_met(lead: NDArray[np.float64], probabilities: NDArray[np.float64]) -> bool:
    """Return whether all deadlines after this step can be met if the distribution stays.

    `lead` is by how much each count is ahead of its share. The deadlines can be met if, for every
    s, at most s of them lie within the next s steps. It is enough to look until every task that is
    ahead now has been caught up with.
    """
    ahead = lead > _ROUNDING
    if np.count_nonzero(ahead) < 2:
        return True
    horizon = math.ceil((lead[ahead] / probabilities[ahead]).max())
    if horizon > _HORIZON:
        return False
    jobs = np.maximum(horizon * probabilities - lead + _ROUNDING, 0).astype(np.int64)
    task = np.arange(len(jobs)).repeat(jobs)
    order = np.arange(1, len(task) + 1)
    number = order - (jobs.cumsum() - jobs)[task]
    deadlines = np.ceil((lead[task] + number) / probabilities[task] - _ROUNDING)
    deadlines.sort()
    return bool((deadlines >= order).all())
