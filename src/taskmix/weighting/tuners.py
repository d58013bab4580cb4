"""Tuners of α: gradient steps or Newton steps."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskmix.weighting.base import Floats, Slope, Worker


@dataclass(frozen=True, slots=True, eq=False)
class Lever:
    """The map from α to the coefficients of the deltas: c = base + unit · (α - 1)."""

    base: Floats  # shape `(tasks,)`
    unit: Floats  # shape `(tasks,)`

    def coefficients(self, alphas: Floats) -> tuple[float, ...]:
        return tuple((self.base + self.unit * (alphas - 1)).tolist())

    def gradient(self, slope: Slope) -> Floats:
        """Return ∂L/∂α from ∂L/∂c."""
        return slope.gradient * self.unit


class Tuner(ABC):
    """Base class of the methods that find the α with the smallest dev loss."""

    @abstractmethod
    def tune(self, worker: Worker, lever: Lever, alphas: Floats, dev: int) -> Floats:
        """Return α, shape `(tasks,)`.

        Args:
            worker: evaluates mixtures of the deltas.
            lever: maps α to the coefficients of the deltas.
            alphas: the initial α, shape `(tasks,)`.
            dev: the number of dev examples.
        """


@dataclass(frozen=True)
class Descent(Tuner):
    """Gradient steps with momentum, as in line 9 of Algorithm 1 of Kourdis et al. (2020).

    The velocity is 0 at the start of each round.

    Args:
        steps: the number of steps in a round; the paper's is 10.
        lr: the step size; the paper's is 0.005 for MultiMNIST, 0.001 for its language tasks.
        momentum: the factor of the previous velocity; the paper's is 0.5.
        batch: the number of dev examples in a step; all if None.
    """

    steps: int = 10
    lr: float = 0.005
    momentum: float = 0.5
    batch: int | None = None

    def __post_init__(self) -> None:
        integers = {"steps": 0} if self.batch is None else {"steps": 0, "batch": 1}
        _check(self, integers, finite=("lr", "momentum"))

    def turns(self, dev: int) -> int:
        """Return the number of steps in a round with this many dev examples."""
        return self.steps

    def tune(self, worker: Worker, lever: Lever, alphas: Floats, dev: int) -> Floats:
        # v ← momentum · v + ∂L/∂α, α ← α - lr · v
        velocity = np.zeros_like(alphas)
        for turn in range(self.turns(dev)):
            slope = worker.slope(lever.coefficients(alphas), self.batch, turn)
            velocity = self.momentum * velocity + lever.gradient(slope)
            alphas = alphas - self.lr * velocity
        return alphas


@dataclass(frozen=True)
class Sweeps(Descent):
    """Gradient steps on batches of dev examples, in `steps` passes over the dev set.

    Another interpretation of the paper's "10 α update steps", which excludes the auxiliary task as
    fast as in the paper's Figure 3.
    """

    batch: int | None = 256

    def turns(self, dev: int) -> int:
        return self.steps * math.ceil(dev / self.batch) if self.batch else self.steps


@dataclass(frozen=True)
class ClosedForm(Tuner):
    """Newton steps for the dev loss as a function of α.

    The Hessian is estimated from finite differences, with one more gradient for each task. Negative
    curvatures change their sign, and flat directions are left out. A trust region prevents extreme
    α if deltas are similar, and a line search ensures that the loss falls. If the dev loss is
    quadratic and its minimum within reach, one step finds it.

    Args:
        steps: the maximum number of Newton steps in a round.
        reach: the maximum length of a step, in α.
        spread: the distance in α of the finite differences.
        flat: curvatures below this fraction of the largest count as flat.
        halvings: the maximum number of times that the line search halves a step.
    """

    steps: int = 1
    reach: float = 1.0
    spread: float = 0.1
    flat: float = 1e-6
    halvings: int = 5

    def __post_init__(self) -> None:
        _check(self, integers={"steps": 0, "halvings": 0}, finite=("spread", "flat"))
        if not (isinstance(self.reach, (int, float)) and self.reach >= 0):  # any reach is math.inf
            raise ValueError(f"tuner: reach: expected a number not below 0, found {self.reach!r}")

    def tune(self, worker: Worker, lever: Lever, alphas: Floats, dev: int) -> Floats:
        # α ← α - t H⁻¹ ∂L/∂α, with the first t of 1, 1/2, 1/4, … that lowers the loss enough
        for _ in range(self.steps):
            here = worker.slope(lever.coefficients(alphas))
            gradient = lever.gradient(here)
            hessian = self._hessian(worker, lever, alphas, gradient)
            step = newton_step(hessian, gradient, self.reach, self.flat)
            length = self._search(worker, lever, alphas, step, here)
            if length == 0:
                break
            alphas = alphas + length * step
        return alphas

    def _hessian(self, worker: Worker, lever: Lever, alphas: Floats, gradient: Floats) -> Floats:
        rows = []
        for direction in np.eye(len(alphas)):
            slope = worker.slope(lever.coefficients(alphas + self.spread * direction))
            rows.append((lever.gradient(slope) - gradient) / self.spread)
        hessian = np.array(rows)
        return np.asarray(hessian + hessian.T) / 2

    def _search(
        self, worker: Worker, lever: Lever, alphas: Floats, step: Floats, here: Slope
    ) -> float:
        """Return the step length by Armijo's rule; 0 if there is none."""
        descent = float(lever.gradient(here) @ step)
        if descent >= 0:
            return 0.0
        for length in 0.5 ** np.arange(self.halvings + 1):
            reached = worker.loss(lever.coefficients(alphas + length * step))
            if reached <= here.loss + 1e-4 * length * descent:
                return float(length)
        return 0.0


def _check(tuner: Tuner, integers: Mapping[str, int], finite: Sequence[str]) -> None:
    """Check that `integers` have at least these values, and that `finite` are not below 0."""
    for name, least in integers.items():
        value = getattr(tuner, name)
        if not (type(value) is int and value >= least):
            raise ValueError(
                f"tuner: {name}: expected a whole number from {least} on, found {value!r}"
            )
    for name in finite:
        value = getattr(tuner, name)
        if not (isinstance(value, (int, float)) and 0 <= value < math.inf):
            raise ValueError(f"tuner: {name}: expected a number not below 0, found {value!r}")


def tuner_of(spec: Tuner | str | Mapping[str, Any]) -> Tuner:
    """Return the tuner of a run file: a name, or a name with arguments."""
    if isinstance(spec, Tuner):
        return spec
    tuners: dict[str, Callable[..., Tuner]] = {
        "closed_form": ClosedForm,
        "descent": Descent,
        "sweeps": Sweeps,
    }
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    if name not in tuners:
        raise ValueError(f"tuner: expected one of {', '.join(tuners)}, found {name!r}")
    return tuners[name](**options)


def newton_step(hessian: Floats, gradient: Floats, reach: float, flat: float) -> Floats:
    """Return -(|H| + μ)⁺ g without flat directions, with the least μ ≥ 0 within reach."""
    curvatures, axes = np.linalg.eigh(hessian)
    sizes = np.abs(curvatures)
    steep = sizes > flat * sizes.max()
    along = gradient @ axes[:, steep]
    damping = _damping(sizes[steep], along, reach)
    step: Floats = -axes[:, steep] @ (along / (sizes[steep] + damping))
    return step


def _damping(sizes: Floats, along: Floats, reach: float) -> float:
    """Return the least μ ≥ 0 with |along / (sizes + μ)| ≤ reach, by bisection."""
    if np.linalg.norm(along / sizes) <= reach:
        return 0.0
    low, high = 0.0, float(np.linalg.norm(along)) / reach
    for _ in range(60):
        middle = (low + high) / 2
        if np.linalg.norm(along / (sizes + middle)) > reach:
            low = middle
        else:
            high = middle
    return high
