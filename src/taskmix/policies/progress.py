"""Progress: prefers the tasks whose likelihood is still rising."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from taskmix.policies.base import LARGEST_LOSS, LARGEST_REWARD, StoredPolicy, bounded
from taskmix.policies.lines import FittedLines
from taskmix.policies.signals import Loss, Outcome, Rewards
from taskmix.policies.state import Array

Of = Literal["likelihood", "loss", "reward"]

#: The maximum sum of the floors of all tasks.
_MAX_FLOORS = 0.5


class Progress(StoredPolicy):
    """Prefers the tasks whose training likelihood rises the most from draw to draw.

    Glover and Hokamp (2019) maximise the mean likelihood over tasks at the end of the budget. To
    first order, one more draw of task k adds its slope b_k: the rise of its likelihood
    s = exp(-loss) from one draw of the task to the next. So

        p_k = floor + (1 - N floor) √max(b_k, 0) / Σ_j √max(b_j, 0).

    The square root and the floor keep three sorts of tasks in the mixture: those whose slopes are
    underestimated, those that begin to rise later, and those that are forgotten meanwhile.
    As losses are noisy, the slopes are those of lines fitted by least squares. Until every task has
    two losses, only tasks with fewer than two are drawn, apart from the floor.

    In the paper's bandit this policy scores higher than ORACLE, which knows the number of draws
    that each task needs, but draws at random; with noisy losses it still beats RANDOM.

    Args:
        tasks: the names of the tasks.
        floor: the minimum probability of a task; at most 1/(2N) is used.
        of: `likelihood`, for tasks that are scored by accuracy; `loss` uses the decrease of the
            loss instead, for language models; `reward` the mean reward of the completions, in
            reinforcement learning.

    >>> from taskmix.rng import stream
    >>> policy, rng = Progress(["rising", "done"]), stream(1, "draws")
    >>> for step in range(20):
    ...     draw = policy.ask(rng)
    ...     policy.tell(Outcome(draw, loss=3 - 0.1 * step if draw.task == "rising" else 0.5))
    >>> policy.probabilities().round(3).tolist()
    [0.99, 0.01]
    """

    name = "progress"
    needs = frozenset({Loss()})
    beliefs: ClassVar = {"slopes": "the fastest progress"}

    def __init__(self, tasks: Sequence[str], floor: float = 0.01, of: Of = "likelihood") -> None:
        super().__init__(tasks)
        if not 0 < floor <= 1:
            raise ValueError(f"floor: expected a number above 0 and up to 1, found {floor}")
        if of not in get_args(Of):
            raise ValueError(f"of: expected likelihood, loss or reward, found {of!r}")
        if of == "reward":
            self.needs = frozenset({Rewards()})
        self._of = of
        self._floor = min(floor, _MAX_FLOORS / len(self.tasks))
        self._ones = np.ones(len(self.tasks))  # a dot product is the fastest sum
        self._lines = FittedLines(len(self.tasks))
        self._new = len(self.tasks)  # tasks with fewer than two losses
        self._share()

    def tell(self, outcome: Outcome) -> None:
        draw, value = outcome.draw, self._value(outcome)
        if value is None:
            return
        if self._lines.observe(draw.index, draw.number, value):
            self._new -= int(self._lines.seen[draw.index]) == 2
            self._share()

    def _value(self, outcome: Outcome) -> float | None:
        """Return the quantity whose slope counts; None if it was not measured."""
        if self._of == "reward":
            return bounded(outcome.reward, LARGEST_REWARD)
        loss = bounded(outcome.loss, LARGEST_LOSS)
        if loss is None or self._of == "loss":
            return None if loss is None else -loss
        # A density can have a loss below 0, that is a likelihood above 1; it counts as 1.
        return math.exp(-max(loss, 0.0))

    def _share(self) -> None:
        floor = self._floor
        if self._new > 0:
            shares: Array = (self._lines.seen < 2) / self._new
        else:
            shares = np.sqrt(np.maximum(self._lines.slopes, 0.0))
            total = float(shares.dot(self._ones))
            if total > 0:
                shares /= total
            else:
                floor = 1 / len(self._tasks)
        probabilities: Array = floor + (1 - floor * len(self._tasks)) * shares
        probabilities.setflags(write=False)
        self._probabilities = probabilities

    def diagnostics(self) -> dict[str, Any]:
        return {"slopes": self._named(self._lines.slopes)}

    def _state(self) -> dict[str, Any]:
        return self._lines.state_dict()

    def _load(self, state: Mapping[str, Any]) -> None:
        self._lines.load_state_dict(state)
        self._new = int((self._lines.seen < 2).sum())
        self._share()
