"""The interface of a policy: `ask` for a task, `tell` the outcome."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import OtherDistributionError, UserError
from taskmix.policies.signals import Draw, Measured, Outcome, Signal
from taskmix.policies.state import Array
from taskmix.records import UnitRecord
from taskmix.run_info import RunInfo
from taskmix.stateful import Stateful

T = TypeVar("T")
_FLOAT64 = np.dtype(np.float64)
#: The largest error of a sum of probabilities.
_ROUNDING = 1e-6
#: Tasks in the `repr` of a policy.
_MAX_ROWS = 20


@dataclass(frozen=True, slots=True)
class _DrawRecord(UnitRecord):
    """The first fields of a step in the journal, before the measurements."""

    task: str
    p: float


@dataclass(frozen=True, slots=True)
class Step(Measured, _DrawRecord):
    """A draw and its outcome in the journal; `p` is the propensity."""

    kind = "step"
    seconds: float | None = None

    @classmethod
    def of(cls, step: int, outcome: Outcome, seconds: float | None = None) -> Self:
        draw = outcome.draw
        return cls(step, draw.task, draw.probability, **outcome.measured(), seconds=seconds)

    def outcome(self, draw: Draw) -> Outcome:
        return Outcome(draw, **self.measured())

    def shares(self) -> Mapping[str, float]:
        return {self.task: 1.0}

    def training_losses(self) -> Mapping[str, float]:
        return {} if self.loss is None else {self.task: self.loss}

    def examples_of(self) -> Mapping[str, int]:
        return {} if self.examples is None else {self.task: self.examples}


class Policy(Stateful, ABC):
    """Base class of policies, which choose the task of the next batch and learn from its outcome.

    A policy takes microseconds, holds no tensors, is deterministic given its random generator, and
    its state serialises to JSON. A subclass sets `name` and implements `probabilities`. One that
    learns also implements `tell`, and lists in `_saved` the attributes that `tell` changes.

    Outcomes may arrive late, out of order, or never. So `tell` and `due` must use `outcome.draw`,
    not the latest draw, and whatever is kept for open draws must be saved and of bounded size.

    Args:
        tasks: the names of the tasks, in the order of every array.
    """

    name: ClassVar[str]
    needs: frozenset[Signal] = frozenset()
    #: The name and options that the policy was made from, if it was named.
    spec: Mapping[str, Any] | None = None
    #: By key of `diagnostics`, words for the highest of its values, such as "the largest weight".
    beliefs: ClassVar[Mapping[str, str]] = {}

    def __init__(self, tasks: Sequence[str]) -> None:
        self._check_class()
        if isinstance(tasks, str):
            raise ValueError(f"tasks: expected a sequence of names, found the string {tasks!r}")
        names = list(tasks)
        if not names:
            raise ValueError("tasks: expected at least one name, found none")
        if len(set(names)) != len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"tasks: expected different names, found twice: {', '.join(repeated)}")
        self._tasks = tuple(names)
        self._drawn = np.zeros(len(names), dtype=np.int64)
        self._draws = 0
        self._accepted: Array | None = None
        self._cumulative = np.empty(0)
        self._total = 1.0

    @classmethod
    def _check_class(cls) -> None:
        if not isinstance(getattr(cls, "name", None), str):
            raise UserError(
                f"policy class {cls.__name__}: expected a class attribute name, such as "
                f'name = "{cls.__name__.lower()}", found none'
            )
        needs: Any = cls.needs  # a subclass may have something else
        if not isinstance(needs, property) and not (
            isinstance(needs, Set) and all(isinstance(signal, Signal) for signal in needs)
        ):
            raise UserError(
                f"policy class {cls.__name__}: expected needs to be a set of signals, such as "
                f"frozenset({{taskmix.Gain()}}), found {needs!r}"
            )

    @classmethod
    def for_run(cls, info: RunInfo, *more: Any, **options: Any) -> Self:
        """Create the policy of a run file; override it if `__init__` does not take tasks."""
        return cls(info.tasks, *more, **options)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, in the order of every array."""
        return self._tasks

    @property
    def drawn(self) -> NDArray[np.int64]:
        """How often each task was drawn, shape `(tasks,)`."""
        return self._drawn.copy()

    @property
    def draws(self) -> int:
        """The number of draws so far."""
        return self._draws

    @abstractmethod
    def probabilities(self) -> Array:
        """Return the distribution of the next draw, shape `(tasks,)`.

        For speed, return the same read-only array until the distribution changes: it is checked and
        written to the journal only once, while a writeable array is copied at every draw.
        """

    def ask(self, rng: np.random.Generator) -> Draw:
        """Draw the task of the next batch; raise `UserError` if `probabilities` is invalid."""
        probabilities = self._distribution()
        return self._take(self._choose(probabilities, rng), probabilities)

    def replay(self, index: int) -> Draw:
        """Record the draw of a task that was chosen elsewhere, for example in a journal."""
        return self._take(index, self._distribution())

    def _take(self, index: int, probabilities: Array) -> Draw:
        self._drawn[index] += 1
        self._draws += 1
        return Draw(self._tasks[index], index, probabilities, self._draws)

    def _distribution(self) -> Array:
        """Return `probabilities()`, validated and read-only."""
        probabilities = self.probabilities()
        if probabilities is self._accepted and probabilities is not None:
            return probabilities
        return self._accept(probabilities)

    def _accept(self, probabilities: Array) -> Array:
        self._check(probabilities)
        if (
            probabilities.flags.writeable
            or probabilities.base is not None
            or probabilities.dtype is not _FLOAT64
        ):
            if self._accepted is not None and np.array_equal(probabilities, self._accepted):
                return self._accepted
            probabilities = probabilities.astype(np.float64)
            probabilities.setflags(write=False)
        self._cumulative = probabilities.cumsum()
        self._total = self._cumulative.item(-1)
        if not -_ROUNDING <= self._total - 1 <= _ROUNDING:
            raise self._no_distribution(f"a sum of {self._total}")
        self._accepted = probabilities
        return probabilities

    def _check(self, probabilities: Array) -> None:
        if not isinstance(probabilities, np.ndarray):
            raise self._no_distribution(f"a {type(probabilities).__name__}")
        if probabilities.shape != self._drawn.shape:
            raise self._no_distribution(f"the shape {probabilities.shape}")
        if probabilities.dtype is not _FLOAT64 and probabilities.dtype.kind not in "fiu":
            raise self._no_distribution(f"the dtype {probabilities.dtype}")
        least = probabilities.item(probabilities.argmin())  # the first NaN, if there is any
        if not least >= 0:
            raise self._no_distribution(f"{least} among them")

    def _no_distribution(self, found: str) -> UserError:
        return UserError(
            f"policy {self.name}, draw {self._draws + 1}: expected probabilities() to return an"
            f" array of {len(self._tasks)} numbers, none below 0, with a sum of 1, found {found}"
        )

    def _choose(self, probabilities: Array, rng: np.random.Generator) -> int:
        # Scaling by the last sum absorbs rounding; "right" never chooses a zero probability.
        return int(self._cumulative.searchsorted(rng.random() * self._total, "right"))

    def due(self, draw: Draw) -> frozenset[Signal]:
        """Return the signals to measure for the outcome of this draw."""
        return self.needs

    def tell(self, outcome: Outcome) -> None:
        """Learn from the outcome of a draw, which may arrive many draws later."""

    def diagnostics(self) -> dict[str, Any]:
        """Return the policy's beliefs (weights, posteriors, uncertainties), for the journal."""
        return {}

    @classmethod
    def explain(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
        """Return in words what changed from one `diagnostics` to the next, for reports.

        >>> from taskmix.policies import Exp3S
        >>> Exp3S.explain({"weights": {"a": 0.6, "b": 0.4}}, {"weights": {"a": 0.3, "b": 0.7}})
        ['b now has the largest log-weight (0.70); before, a had it']
        """
        sentences = []
        for key, words in cls.beliefs.items():
            old, new = numbers_of(before.get(key)), numbers_of(after.get(key))
            if not old or not new:
                continue
            leader, task = (max(values, key=values.__getitem__) for values in (old, new))
            if task != leader:
                sentences.append(
                    f"{task} now has {words} ({new[task]:.2f}); before, {leader} had it"
                )
        return sentences

    def state_dict(self) -> dict[str, Any]:
        """Return everything that changes over time, as JSON-able values."""
        return {
            "tasks": list(self._tasks),
            "drawn": self._drawn.tolist(),
            "next": {"draw": self._draws + 1, "probabilities": self._distribution().tolist()},
            **self._state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of a policy with the same tasks and arguments."""
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
            cause = (
                "its arguments, the data or the number of steps are not those of the training that"
                " was saved, or _saved leaves out what tell changes"
                if self._saved or type(self)._state is not Stateful._state
                else "its class does not list in _saved what tell changes"
            )
            raise OtherDistributionError(
                f"policy {self.name}, draw {draw}: expected the distribution that was saved,"
                f" found another after loading: {cause}"
            )

    def _named(self, values: NDArray[Any]) -> dict[str, Any]:
        return dict(zip(self._tasks, values.tolist(), strict=True))

    def __repr__(self) -> str:
        return _table(self)


class StoredPolicy(Policy):
    """A policy that computes its distribution when it changes, and stores it read-only."""

    _probabilities: Array

    def probabilities(self) -> Array:
        return self._probabilities


def _table(policy: Policy) -> str:
    shares, drawn = policy.probabilities(), policy.drawn
    total = max(1, int(drawn.sum()))
    largest = sorted(range(len(shares)), key=lambda k: -shares[k])[:_MAX_ROWS]
    rows = [
        ("task", "share", "drawn", "share drawn"),
        *(
            (policy.tasks[k], f"{shares[k]:.4f}", f"{drawn[k]}", f"{drawn[k] / total:.4f}")
            for k in sorted(largest)
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    if len(shares) > _MAX_ROWS:
        lines.append(f"... and {len(shares) - _MAX_ROWS} more tasks")
    return "\n".join([type(policy).__name__, *lines])


def distribution(weights: Array, what: str) -> Array:
    """Return the weights divided by their sum, as a read-only array."""
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or weights.sum() <= 0:
        raise ValueError(
            f"{what}: expected finite numbers, none below 0 and not all 0, found {weights.tolist()}"
        )
    probabilities: Array = weights / weights.sum()
    probabilities.flags.writeable = False
    return probabilities


#: No batch of a model that learns has a larger loss, and its exponential does not overflow.
LARGEST_LOSS = 50.0
#: Rewards beyond this count as this much, so that their squares do not overflow.
LARGEST_REWARD = 1e6


def bounded(value: float | None, largest: float) -> float | None:
    """Clip a measurement to [-largest, largest]; None if it is missing, infinite or NaN."""
    if value is None or not math.isfinite(value):
        return None
    return min(max(float(value), -largest), largest)


def checked_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    for task, size in sizes.items():
        if not size > 0:
            raise ValueError(f"sizes, {task}: expected a number above 0, found {size}")
    return dict(sizes)


def shares_or_uniform(shares: Mapping[str, float] | None, tasks: Sequence[str], what: str) -> Array:
    """Return a distribution in the order of the tasks, normalised; the uniform one if None."""
    if shares is None:
        return distribution(np.ones(len(tasks)), what)
    values = list(in_order(shares, tasks, what).values())
    return distribution(np.array(values, dtype=np.float64), what)


def in_order(values: Mapping[str, T], tasks: Sequence[str], what: str) -> dict[str, T]:
    """Return a mapping from task names, sorted in the order of the tasks."""
    if not isinstance(values, Mapping) or set(values) != set(tasks):
        raise ValueError(f"{what}: expected a value for each of {list(tasks)}, found {values}")
    return {task: values[task] for task in tasks}


def target_tasks(targets: Sequence[str] | None, tasks: Sequence[str]) -> tuple[str, ...]:
    """Return the targets, which are all tasks if None."""
    names = tuple(tasks) if targets is None else tuple(targets)
    if isinstance(targets, str) or not names or not set(names) <= set(tasks):
        raise ValueError(f"targets: expected some of {list(tasks)}, found {targets!r}")
    return names


def numbers_of(belief: object) -> dict[str, float]:
    """Return numbers by task; none if a journal has something else."""
    if not isinstance(belief, Mapping):
        return {}
    return {task: x for task, x in belief.items() if isinstance(x, int | float)}
