"""The interface between a weighting, which decides, and a worker, which trains."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.records import UnitRecord, normalised
from taskmix.run_info import RunInfo
from taskmix.stateful import Stateful

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Separated:
    """The results of training each task alone; all arrays of shape `(tasks,)`."""

    norms: Floats  # of the deltas
    losses: Floats  # the mean training losses, not scaled
    scores: Floats | None  # the target's dev score after each task, if requested
    dev: int  # the number of the target's dev examples for the weighting


@dataclass(frozen=True, slots=True, eq=False)
class JointResult:
    """The results of joint training."""

    losses: Floats  # the mean training loss of each task, 0 if it was left out, shape `(tasks,)`
    score: float  # the target's dev score
    dev_loss: float  # the target's dev loss


@dataclass(frozen=True, slots=True, eq=False)
class Slope:
    """The target's dev loss at a mixture and its gradient, shape `(tasks,)`."""

    loss: float
    gradient: Floats


class Worker(Protocol):
    """Owns the model, and trains and evaluates it as a weighting decides.

    Between calls it holds the *base* (the parameters at the start of the round), the *deltas* (the
    changes by training each task alone from the base), and the *candidate* (the result of joint
    training from the base). Sequences of numbers have one for each task.
    """

    def separate(
        self,
        scales: Sequence[float],
        fraction: float = 1.0,
        *,
        fresh: bool = True,
        scored: bool = False,
    ) -> Separated:
        """Train each task alone from the base, store its delta, and return to the base.

        Args:
            scales: the factor of each task's loss.
            fraction: the fraction of each task's training data.
            fresh: whether each task has a new optimiser, or continues with its previous one.
            scored: whether to measure the target's dev score after each task.
        """

    def together(
        self, weights: Sequence[float], fraction: float = 1.0, *, fresh: bool = False
    ) -> JointResult:
        """Train on the weighted sum of the losses from the base; the result is the candidate.

        Args:
            weights: the weight of each task's loss; a task with weight 0 is left out.
            fraction: the fraction of each task's training data.
            fresh: whether the optimiser is new, or that of the last candidate kept.
        """

    def slope(
        self, coefficients: Sequence[float], batch: int | None = None, turn: int = 0
    ) -> Slope:
        """Return the target's dev loss and its gradient at base + Σ cᵢ δᵢ.

        Args:
            coefficients: cᵢ of each task.
            batch: the number of dev examples; all if None.
            turn: the number of the batch; batches cycle through the dev set.
        """

    def loss(self, coefficients: Sequence[float]) -> float:
        """Return the target's dev loss at base + Σ cᵢ δᵢ."""

    def mix(self, coefficients: Sequence[float]) -> None:
        """Make base + Σ cᵢ δᵢ the base."""

    def keep(self) -> None:
        """Let the round end at the candidate, instead of an earlier one."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a round, for the journal.

    Args:
        weights: the weight of each task after the round.
        losses: the mean training loss of each task.
        dev_loss: the target's dev loss at the end of the round.
        norms: the norm of each task's delta, if there are any.
        alphas: the α of each task, if there are any.
        tries: the number of joint trainings.
    """

    weights: dict[str, float]
    losses: dict[str, float]
    dev_loss: float
    norms: dict[str, float] = field(default_factory=dict)
    alphas: dict[str, float] = field(default_factory=dict)
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Round(UnitRecord):
    """A round in the journal; `Report` documents the fields."""

    kind = "round"
    norms: dict[str, float]
    alphas: dict[str, float]
    weights: dict[str, float]
    dev_loss: float
    losses: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None

    def shares(self) -> Mapping[str, float]:
        return normalised(self.weights)

    def training_losses(self) -> Mapping[str, float]:
        return self.losses

    def examples_of(self) -> Mapping[str, int]:
        return {}  # a round trains on a fraction of the data


class Weighting(Stateful, ABC):
    """Base class of weightings, which choose how much each task counts, to help a target task.

    A subclass sets `name` and implements `weights` and `round`, which has a `Worker` train and
    evaluate. It holds no tensors, and changes its state only at the end of a round, so that an
    interrupted round can be repeated; it lists in `_saved` the attributes that a round changes.

    Args:
        tasks: the names of the tasks, in the order of every array.
        target: the task that the others help.
        split_dev: whether the weights are tuned on one half of the target's dev set and the model
            is selected on the other; otherwise both use the whole dev set.
    """

    name: ClassVar[str]

    def __init__(self, tasks: Sequence[str], target: str, *, split_dev: bool = False) -> None:
        if isinstance(tasks, str) or len(set(tasks)) != len(tasks) or not tasks:
            raise ValueError(f"tasks: expected different names, at least one, found {tasks!r}")
        if target not in tasks:
            raise ValueError(f"target: expected one of {', '.join(tasks)}, found {target!r}")
        self.tasks = tuple(tasks)
        self.target = target
        self.split_dev = split_dev

    @classmethod
    def for_run(cls, info: RunInfo, **options: Any) -> Self:
        """Create the weighting of a run file."""
        return cls(info.tasks, **options)

    @abstractmethod
    def weights(self) -> Floats:
        """Return the weight of each task, shape `(tasks,)`."""

    @abstractmethod
    def round(self, worker: Worker) -> Report:
        """Have the worker carry out the next round, and return a report."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that changes over time, as JSON-able values."""
        return {"tasks": list(self.tasks), "target": self.target, **self._state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of a weighting with the same tasks, target and arguments."""
        saved = (tuple(state["tasks"]), state["target"])
        if saved != (self.tasks, self.target):
            raise ValueError(f"state: expected {(self.tasks, self.target)}, found {saved}")
        self._load(state)

    def named(self, values: Floats) -> dict[str, float]:
        """Return the values by task name."""
        return dict(zip(self.tasks, values.tolist(), strict=True))

    def __repr__(self) -> str:
        shares = self.weights() / self.weights().sum()
        rows = ", ".join(f"{name} {share:.3f}" for name, share in self.named(shares).items())
        return f"{type(self).__name__}(target {self.target}: {rows})"


def checked_numbers(numbers: Sequence[float], tasks: int, what: str) -> Floats:
    """Return the numbers as an array; raise `UserError` unless there is a finite one a task."""
    array = np.asarray(numbers)
    shaped = array.shape == (tasks,) and array.dtype.kind in "fiu"
    if not shaped or not np.isfinite(array).all():
        raise UserError(f"{what}: expected a finite number for each task, found {numbers}")
    return array.astype(np.float64)


def shares_of(weights: Floats) -> tuple[float, ...]:
    return tuple((weights / weights.sum()).tolist())


def check_fraction(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction: expected a number above 0, at most 1, found {fraction}")


def check_floor(floor: float) -> None:
    if not floor > 0:
        raise ValueError(f"floor: expected a number above 0, found {floor}")
