"""The ask/tell interface that every policy stands behind."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.policies.signals import Signal
from taskmix.run_info import RunInfo

T = TypeVar("T")
_FLOAT64 = np.dtype(np.float64)
#: A sum of probabilities that is off 1 by no more counts as 1.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One decision: a task, and the distribution that it was drawn from.

    A policy knows a draw by its values alone, so that one can be written down and made again.

    Args:
        task: name of the task drawn.
        index: its place in `policy.tasks`.
        probabilities: the distribution of the draw, shape `(tasks,)`; not to be written to.
        number: counts the draws of a policy from 1.
    """

    task: str
    index: int
    probabilities: NDArray[np.float64]
    number: int

    @property
    def probability(self) -> float:
        """The propensity: with what probability this task was drawn."""
        return float(self.probabilities[self.index])


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What came of a draw. A signal that was not measured is None.

    Args:
        draw: the decision.
        loss: mean negative log-likelihood of the batch before the step.
        gain: by how much the step lowered the loss on the same batch.
        score: dev score of the task that the policy's `DevScore` names, after the step.
        uncertainty: the model's uncertainty on each task, by name.
        tokens: how many tokens the batch had, padding left out; 0 where there is no text.
        dev_losses: dev losses after the step, by task.
        alignment: inner product of the batch's gradient with the mean dev gradient.
        gradient: length of the batch's gradient, as it was clipped; measured with the alignment.
        skill: how far the drawn task's dev score after the step is above guessing; see `Skill`.
    """

    draw: Draw
    loss: float | None = None
    gain: float | None = None
    score: float | None = None
    uncertainty: Mapping[str, float] | None = None
    tokens: int | None = None
    dev_losses: Mapping[str, float] | None = None
    alignment: float | None = None
    gradient: float | None = None
    skill: float | None = None


class Policy(ABC):
    """Says which task gets the next batch, with what probability, and learns from the outcome.

    A policy costs microseconds, holds no tensors, is deterministic given its generator, and
    serialises to JSON. A new one sets `name`, and writes `probabilities` and, if it learns, `tell`,
    `_state` and `_load`.

    Outcomes may come late, out of order, or never: there may be other draws between a draw and its
    outcome. So `tell` and `due` go by `outcome.draw`, never by the latest draw, and what a policy
    keeps for outcomes that are still to come is part of its state and of bounded size.

    Args:
        tasks: the names of the tasks, in the order of every array.
    """

    name: ClassVar[str]
    needs: frozenset[Signal] = frozenset()

    def __init__(self, tasks: Sequence[str]) -> None:
        if isinstance(tasks, str):
            raise ValueError(f"tasks: expected a sequence of names, found the string {tasks!r}")
        names = list(tasks)
        if not names:
            raise ValueError("tasks: expected at least one name, found none")
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"tasks: expected different names, found twice: {', '.join(twice)}")
        self._tasks = tuple(names)
        self._drawn = np.zeros(len(names), dtype=np.int64)
        self._draws = 0
        self._accepted: NDArray[np.float64] | None = None
        self._cumulative = np.empty(0)
        self._total = 1.0

    @classmethod
    def for_run(cls, info: RunInfo, *more: Any, **options: Any) -> Self:
        """The policy that a run file means; override it where `__init__` does not take tasks."""
        return cls(info.tasks, *more, **options)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The task names, in the order of every array."""
        return self._tasks

    @property
    def drawn(self) -> NDArray[np.int64]:
        """How often each task was drawn, shape `(tasks,)`."""
        return self._drawn.copy()

    @property
    def draws(self) -> int:
        """How many draws there were so far."""
        return self._draws

    @abstractmethod
    def probabilities(self) -> NDArray[np.float64]:
        """Return the distribution that the next draw comes from, shape `(tasks,)`.

        Return the same read-only array while nothing has changed and a new one when it has: `ask`
        checks an array and sums it up once, and the journal writes it once, by its identity. An
        array that can be written to is copied at every draw.
        """

    def ask(self, rng: np.random.Generator) -> Draw:
        """Draw the task that gets the next batch; raise `UserError` if it has no distribution."""
        probabilities = self._distribution()
        return self._take(self._choose(probabilities, rng), probabilities)

    def replay(self, index: int) -> Draw:
        """Take the draw of a task that was chosen elsewhere: in a journal, or by another rule."""
        return self._take(index, self._distribution())

    def _take(self, index: int, probabilities: NDArray[np.float64]) -> Draw:
        """Count a draw and give it its number."""
        self._drawn[index] += 1
        self._draws += 1
        return Draw(self._tasks[index], index, probabilities, self._draws)

    def _distribution(self) -> NDArray[np.float64]:
        """What `probabilities` returns, known to be a distribution and not to change any more."""
        found = self.probabilities()
        if found is self._accepted and found is not None:
            return found
        return self._accept(found)

    def _accept(self, found: NDArray[np.float64]) -> NDArray[np.float64]:
        self._check(found)
        if found.flags.writeable or found.base is not None or found.dtype is not _FLOAT64:
            if self._accepted is not None and np.array_equal(found, self._accepted):
                return self._accepted
            found = found.astype(np.float64)
            found.setflags(write=False)
        self._cumulative = found.cumsum()
        self._total = self._cumulative.item(-1)
        if not -_ROUNDING <= self._total - 1 <= _ROUNDING:
            raise self._no_distribution(f"a sum of {self._total}")
        self._accepted = found
        return found

    def _check(self, found: NDArray[np.float64]) -> None:
        if not isinstance(found, np.ndarray):
            raise self._no_distribution(f"a {type(found).__name__}")
        if found.shape != self._drawn.shape:
            raise self._no_distribution(f"the shape {found.shape}")
        if found.dtype is not _FLOAT64 and found.dtype.kind not in "fiu":
            raise self._no_distribution(f"the dtype {found.dtype}")
        least = found.item(found.argmin())  # the first NaN, if there is any
        if not least >= 0:
            raise self._no_distribution(f"{least} among them")

    def _no_distribution(self, found: str) -> UserError:
        return UserError(
            f"policy {self.name}, draw {self._draws + 1}: expected probabilities() to return an"
            f" array of {len(self._tasks)} numbers, none below 0, with a sum of 1, found {found}"
        )

    def _choose(self, probabilities: NDArray[np.float64], rng: np.random.Generator) -> int:
        """Return a task's place, drawn from this distribution."""
        # Scaling by the last sum absorbs rounding; "right" never lands on a zero probability.
        return int(self._cumulative.searchsorted(rng.random() * self._total, "right"))

    def due(self, draw: Draw) -> frozenset[Signal]:
        """Return the signals to be measured for the outcome of this draw."""
        return self.needs

    def tell(self, outcome: Outcome) -> None:  # noqa: B027 (a fixed policy has nothing to learn)
        """Learn from what came of a draw, at once or many draws later."""

    def diagnostics(self) -> dict[str, Any]:
        """Return what the policy believes (weights, posteriors, uncertainties), for the journal."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes over time, as JSON-able values."""
        return {
            "tasks": list(self._tasks),
            "drawn": self._drawn.tolist(),
            "next": {"draw": self._draws + 1, "probabilities": self._distribution().tolist()},
            **self._state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of a policy with the same tasks and arguments."""
        if list(state["tasks"]) != list(self._tasks):
            raise ValueError(
                f"state: expected the tasks {list(self._tasks)}, found {list(state['tasks'])}"
            )
        self._drawn = np.array(state["drawn"], dtype=np.int64)
        self._draws = int(self._drawn.sum())
        self._load(state)
        self._check_next(state["next"]["draw"], state["next"]["probabilities"])

    def _check_next(self, draw: int, saved: list[float]) -> None:
        """Refuse a state from which the next draw would come from another distribution."""
        same_draw = draw == self._draws + 1
        if same_draw and not np.allclose(self._distribution(), saved, rtol=0, atol=_ROUNDING):
            raise UserError(
                f"policy {self.name}, draw {draw}: expected the distribution that was saved,"
                " found another after loading: _state and _load leave out what tell changes"
            )

    def _state(self) -> dict[str, Any]:
        """Return the part of the state that is the policy's own."""
        return {}

    def _load(self, state: Mapping[str, Any]) -> None:  # noqa: B027 (a fixed policy has no state)
        """The counterpart of `_state`."""

    def __repr__(self) -> str:
        """A table: task, share asked, times drawn, share drawn."""
        return table(self)


class Constant(Policy):
    """A policy whose distribution never changes.

    Args:
        weights: by task, what its probability is proportional to.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        super().__init__(list(weights))
        values = np.array(list(weights.values()), dtype=np.float64)
        self._probabilities = distribution(values, type(self).name)

    def probabilities(self) -> NDArray[np.float64]:
        """Return the same distribution at every draw."""
        return self._probabilities


def table(policy: Policy, most: int = 20) -> str:
    """The policy as a table that a person can read; at most `most` tasks, the largest shares."""
    shares = policy.probabilities()
    drawn = policy.drawn
    total = max(1, int(drawn.sum()))
    order = sorted(range(len(shares)), key=lambda k: -shares[k])[:most]
    rows = [
        (policy.tasks[k], f"{shares[k]:.4f}", f"{drawn[k]}", f"{drawn[k] / total:.4f}")
        for k in sorted(order)
    ]
    head = ("task", "share", "drawn", "share drawn")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(4)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[c].rjust(widths[c]) for c in (1, 2, 3))])
        for row in [head, *rows]
    ]
    if len(shares) > most:
        lines.append(f"... and {len(shares) - most} more tasks")
    return "\n".join([type(policy).__name__, *lines])


def distribution(weights: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    """Weights made to sum to one, as a read-only array; refuses what is no distribution."""
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or weights.sum() <= 0:
        raise ValueError(
            f"{what}: expected finite numbers, none below 0 and not all 0, found {weights.tolist()}"
        )
    probabilities: NDArray[np.float64] = weights / weights.sum()
    probabilities.flags.writeable = False
    return probabilities


LARGEST_LOSS = 50.0
"""No batch of a model that learns has a larger loss; its exponential is a number."""


def bounded(value: float | None, largest: float) -> float | None:
    """Return a measured number, brought to [-largest, largest]; None if it is no number.

    >>> bounded(3.0, 50.0), bounded(1e300, 50.0), bounded(float("nan"), 50.0)
    (3.0, 50.0, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return min(max(float(value), -largest), largest)


def checked_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Training-set sizes as given; refuses a task without examples."""
    for task, size in sizes.items():
        if not size > 0:
            raise ValueError(f"sizes, {task}: expected a number above 0, found {size}")
    return dict(sizes)


def in_order(values: Mapping[str, T], tasks: Sequence[str], what: str) -> dict[str, T]:
    """Return what a run file says by task name, in the order of the run's tasks."""
    if not isinstance(values, Mapping) or set(values) != set(tasks):
        raise ValueError(f"{what}: expected a value for each of {list(tasks)}, found {values}")
    return {task: values[task] for task in tasks}


def known_tasks(chosen: Sequence[str] | None, tasks: Sequence[str], what: str) -> tuple[str, ...]:
    """Return some of a policy's tasks, all if None; refuse others."""
    names = tuple(tasks) if chosen is None else tuple(chosen)
    if isinstance(chosen, str) or not names or not set(names) <= set(tasks):
        raise ValueError(f"{what}: expected some of {list(tasks)}, found {chosen!r}")
    return names
