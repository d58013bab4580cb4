"""What stands between a weighting, which decides, and a worker, which trains.

A round is a conversation. The weighting's `round` is a generator: it yields requests (train each
task alone, try this mixture on the dev set, keep it) and is sent the answers; it holds floats and
no tensors. Whoever owns the model answers the requests: `play` does so with a `Worker`.

Between requests the worker holds a *base* (the parameters that the round started from), the
*deltas* that single tasks made of it, and the *candidate* that joint training made of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.run_info import RunInfo

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Separated:
    """What came of training each task alone, in the order of the tasks.

    Args:
        norms: length of each delta, shape `(tasks,)`.
        losses: mean training loss of each task, not scaled, shape `(tasks,)`.
        scores: the target's dev score after each task, shape `(tasks,)`; None if not asked for.
        dev: how many dev examples of the target there are for the weighting to use.
    """

    norms: Floats
    losses: Floats
    scores: Floats | None
    dev: int


@dataclass(frozen=True, slots=True, eq=False)
class JointResult:
    """What came of joint training.

    Args:
        losses: mean training loss of each task, 0 for one that was left out, shape `(tasks,)`.
        score: the target's dev score.
        dev_loss: the target's dev loss.
    """

    losses: Floats
    score: float
    dev_loss: float


@dataclass(frozen=True, slots=True, eq=False)
class Slope:
    """The target's dev loss at a mixture and its gradient, shape `(tasks,)`."""

    loss: float
    gradient: Floats


class Worker(Protocol):
    """What an executor has to offer a weighting."""

    def separate(self, request: "Separate") -> Separated:
        """Train each task alone from the base, keep its delta, come back to the base."""

    def together(self, request: "Together") -> JointResult:
        """Train jointly from the base, up to the candidate."""

    def slope(self, request: "DevSlope") -> Slope:
        """Return the target's dev loss and its gradient at base + Σ cᵢ δᵢ."""

    def loss(self, request: "DevLoss") -> float:
        """Return the target's dev loss at base + Σ cᵢ δᵢ."""

    def mix(self, request: "Mix") -> None:
        """Make base + Σ cᵢ δᵢ the base."""

    def keep(self) -> None:
        """Let the round end at the candidate, in place of any that was kept before."""


class Request(ABC):
    """Something that a weighting wants done."""

    @abstractmethod
    def by(self, worker: Worker) -> Any:
        """Return the worker's answer."""


@dataclass(frozen=True, slots=True)
class Separate(Request):
    """Train each task alone from the base; answered by `Separated`.

    Args:
        scales: factor on each task's loss.
        fraction: which share of each task's training data is used.
        fresh: whether each task starts with a new optimiser; else it goes on with its own.
        scored: whether the target's dev score is wanted after each task.
    """

    scales: tuple[float, ...]
    fraction: float = 1.0
    fresh: bool = True
    scored: bool = False

    def by(self, worker: Worker) -> Separated:
        """Return the worker's answer."""
        return worker.separate(self)


@dataclass(frozen=True, slots=True)
class Together(Request):
    """Train on the weighted sum of the losses from the base; answered by `JointResult`.

    Args:
        weights: weight of each task's loss; a task of weight 0 is left out.
        fraction: which share of each task's training data is used.
        fresh: whether to start with a new optimiser; else with the last kept candidate's.
    """

    weights: tuple[float, ...]
    fraction: float = 1.0
    fresh: bool = False

    def by(self, worker: Worker) -> JointResult:
        """Return the worker's answer."""
        return worker.together(self)


@dataclass(frozen=True, slots=True)
class DevSlope(Request):
    """The dev loss and its gradient in the coefficients of the deltas; answered by `Slope`.

    Args:
        coefficients: how much of each delta is added to the base.
        batch: dev examples to use; all if None.
        turn: which batch: they follow each other through the dev set, round and round.
    """

    coefficients: tuple[float, ...]
    batch: int | None = None
    turn: int = 0

    def by(self, worker: Worker) -> Slope:
        """Return the worker's answer."""
        return worker.slope(self)


@dataclass(frozen=True, slots=True)
class DevLoss(Request):
    """The dev loss alone at a mixture of the deltas; answered by a float."""

    coefficients: tuple[float, ...]

    def by(self, worker: Worker) -> float:
        """Return the worker's answer."""
        return worker.loss(self)


@dataclass(frozen=True, slots=True)
class Mix(Request):
    """Make the mixture of the deltas the base; answered by None."""

    coefficients: tuple[float, ...]

    def by(self, worker: Worker) -> None:
        """The worker's answer."""
        worker.mix(self)


@dataclass(frozen=True, slots=True)
class Keep(Request):
    """Let the round end at the candidate; answered by None."""

    def by(self, worker: Worker) -> None:
        """The worker's answer."""
        worker.keep()


@dataclass(frozen=True, slots=True)
class Report:
    """A round in figures, by task: what the journal keeps of it.

    Args:
        weights: the weights after the round.
        losses: mean training losses.
        dev_loss: the target's dev loss where the round ended.
        norms: lengths of the deltas, if there were any.
        alphas: the α that the round settled on, if it has any.
        tries: how often joint training was tried.
    """

    weights: dict[str, float]
    losses: dict[str, float]
    dev_loss: float
    norms: dict[str, float] = field(default_factory=dict)
    alphas: dict[str, float] = field(default_factory=dict)
    tries: int = 0


Conversation = Generator[Request, Any, Report]


class Weighting(ABC):
    """Decides, round by round, how much each task's training counts for the sake of one target.

    A new one sets `name`, writes `round`, and changes its own state only at a round's end, so that
    a round that was broken off can be played again.

    Args:
        tasks: the names of the tasks, in the order of every array.
        target: the task that the others are there to help.
        split_dev: whether the worker tunes on one half of the target's dev set and selects the
            model on the other; else both use all of it.
    """

    name: ClassVar[str]

    def __init__(self, tasks: Sequence[str], target: str, *, split_dev: bool = False) -> None:
        if isinstance(tasks, str) or len(set(tasks)) != len(tasks) or not tasks:
            raise ValueError(f"tasks: expected different names, at least one, found {tasks!r}")
        if target not in tasks:
            raise ValueError(f"target: expected one of {', '.join(tasks)}, found {target!r}")
        self._tasks = tuple(tasks)
        self._target = target
        self.split_dev = split_dev

    @classmethod
    def for_run(cls, info: RunInfo, **options: Any) -> Self:
        """Return the weighting that a run file means."""
        return cls(info.tasks, **options)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The task names, in the order of every array."""
        return self._tasks

    @property
    def target(self) -> str:
        """The task that the others are there to help."""
        return self._target

    @abstractmethod
    def weights(self) -> Floats:
        """Return the weight of each task, shape `(tasks,)`."""

    @abstractmethod
    def round(self) -> Conversation:
        """Return the next round: yields requests, is sent their answers, returns a report."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes over time, as JSON-able values."""
        return {"tasks": list(self._tasks), "target": self._target, **self._state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of a weighting with the same tasks, target and arguments."""
        found = (tuple(state["tasks"]), state["target"])
        if found != (self._tasks, self._target):
            raise ValueError(f"state: expected {(self._tasks, self._target)}, found {found}")
        self._load(state)

    def _state(self) -> dict[str, Any]:
        return {}

    def _load(self, state: Mapping[str, Any]) -> None:  # noqa: B027 (a baseline has no state)
        """The counterpart of `_state`."""

    def named(self, values: Floats) -> dict[str, float]:
        """Return an array over the tasks as a mapping from their names."""
        return dict(zip(self._tasks, values.tolist(), strict=True))

    def __repr__(self) -> str:
        """The target and each task's share of the weights."""
        shares = self.weights() / self.weights().sum()
        rows = ", ".join(f"{name} {share:.3f}" for name, share in self.named(shares).items())
        return f"{type(self).__name__}(target {self._target}: {rows})"


def play(weighting: Weighting, worker: Worker) -> Report:
    """Return one round: the worker answers the weighting's requests until it has decided."""
    conversation = weighting.round()
    answer: Any = None
    while True:
        try:
            request = conversation.send(answer)
        except StopIteration as end:
            return _reported(weighting, end.value)
        _check(weighting, request)
        answer = request.by(worker)


def _reported(weighting: Weighting, found: Any) -> Report:
    if not isinstance(found, Report):
        raise UserError(
            f"weighting {weighting.name}: expected round() to return a Report, found {found!r}"
        )
    return found


def _check(weighting: Weighting, request: Any) -> None:
    """Raise if a weighting asks for what nobody can do."""
    if not isinstance(request, Request):
        raise UserError(
            f"weighting {weighting.name}: expected round() to yield requests, found {request!r}"
        )
    for name in ("scales", "weights", "coefficients"):
        numbers = np.asarray(getattr(request, name, np.zeros(len(weighting.tasks))))
        shaped = numbers.shape == (len(weighting.tasks),) and numbers.dtype.kind in "fiu"
        if not shaped or not np.isfinite(numbers).all():
            raise UserError(
                f"weighting {weighting.name}: expected {name} of {type(request).__name__} to be a "
                f"finite number for each task, found {numbers.tolist()}"
            )


def normalised(weights: Floats) -> tuple[float, ...]:
    """Weights as shares that sum to one."""
    return tuple((weights / weights.sum()).tolist())
