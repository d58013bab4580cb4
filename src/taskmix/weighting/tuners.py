"""How the α that mix the deltas are found: by the paper's gradient steps, or in closed form."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskmix.weighting.base import DevLoss, DevSlope, Floats, Request, Slope

Tuning = Generator[Request, Any, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Lever:
    """How α moves the coefficients of the deltas: c = base + unit · (α - 1).

    Args:
        base: the coefficients at α = 1, shape `(tasks,)`.
        unit: how far a unit of α moves each, shape `(tasks,)`.
    """

    base: Floats
    unit: Floats

    def coefficients(self, alphas: Floats) -> tuple[float, ...]:
        """Return the coefficients that these α mean."""
        return tuple((self.base + self.unit * (alphas - 1)).tolist())

    def gradient(self, slope: Slope) -> Floats:
        """∂L/∂α from ∂L/∂c."""
        return slope.gradient * self.unit


class Tuner(ABC):
    """Finds the α that make the dev loss small."""

    @abstractmethod
    def tune(self, lever: Lever, alphas: Floats, dev: int) -> Tuning:
        """From a first guess on; yields requests, is sent their answers, returns α.

        Args:
            lever: how α moves the coefficients of the deltas.
            alphas: the first guess, shape `(tasks,)`.
            dev: how many dev examples there are.
        """


@dataclass(frozen=True)
class Descent(Tuner):
    """Gradient steps with momentum, as in line 9 of Algorithm 1 of Kourdis et al. (2020).

    Each step sees the whole dev set, or the next `batch` examples of it. Momentum starts from 0 in
    each round.

    Args:
        steps: how many steps a round takes; the paper takes 10.
        lr: step size; the paper's is 0.005 for MultiMNIST, 0.001 for its language tasks.
        momentum: the paper's is 0.5.
        batch: dev examples in a step; all if None.
    """

    steps: int = 10
    lr: float = 0.005
    momentum: float = 0.5
    batch: int | None = None

    def __post_init__(self) -> None:
        whole = {"steps": 0} if self.batch is None else {"steps": 0, "batch": 1}
        _check(self, whole, finite=("lr", "momentum"))

    def turns(self, dev: int) -> int:
        """Return how many steps a round takes with this many dev examples."""
        return self.steps

    def tune(self, lever: Lever, alphas: Floats, dev: int) -> Tuning:
        """SGD with momentum: v ← momentum · v + ∂L/∂α, α ← α - lr · v."""
        velocity = np.zeros_like(alphas)
        for turn in range(self.turns(dev)):
            slope: Slope = yield DevSlope(lever.coefficients(alphas), self.batch, turn)
            velocity = self.momentum * velocity + lever.gradient(slope)
            alphas = alphas - self.lr * velocity
        return alphas


@dataclass(frozen=True)
class Sweeps(Descent):
    """Gradient steps on dev batches, `steps` times through the whole dev set.

    The other reading of the paper's "10 α update steps"; it excludes the auxiliary as fast as the
    paper's Figure 3 shows.
    """

    batch: int | None = 256

    def turns(self, dev: int) -> int:
        """`steps` times the number of batches in the dev set."""
        return self.steps * math.ceil(dev / self.batch) if self.batch else self.steps


@dataclass(frozen=True)
class ClosedForm(Tuner):
    """Newton steps on the second-order model of the dev loss over the span of the deltas.

    The span has as many dimensions as there are tasks, so the Hessian there is known after one more
    gradient for each task. Directions of negative curvature are turned, flat ones are left alone; a
    trust region keeps deltas that are nearly alike from getting wild α, and a line search guards
    the step. Exact after one step where the dev loss is quadratic and its minimum within reach.

    Args:
        steps: most Newton steps in a round.
        reach: longest step, in α.
        spread: how far apart in α the gradients are taken whose differences make the Hessian.
        flat: curvatures below this share of the largest count as none.
        halvings: how often the line search halves a step before it gives up.
    """

    steps: int = 1
    reach: float = 1.0
    spread: float = 0.1
    flat: float = 1e-6
    halvings: int = 5

    def __post_init__(self) -> None:
        _check(self, whole={"steps": 0, "halvings": 0}, finite=("spread", "flat"))
        if not (isinstance(self.reach, (int, float)) and self.reach >= 0):  # any reach is math.inf
            raise ValueError(f"tuner: reach: expected a number not below 0, found {self.reach!r}")

    def tune(self, lever: Lever, alphas: Floats, dev: int) -> Tuning:
        """α ← α - t H⁻¹ ∂L/∂α, the first t of 1, 1/2, 1/4, … that lowers the loss enough."""
        for _ in range(self.steps):
            here: Slope = yield DevSlope(lever.coefficients(alphas))
            gradient = lever.gradient(here)
            hessian = yield from self._hessian(lever, alphas, gradient)
            step = newton_step(hessian, gradient, self.reach, self.flat)
            length = yield from self._search(lever, alphas, step, here.loss, float(gradient @ step))
            if length == 0:
                break
            alphas = alphas + length * step
        return alphas

    def _hessian(self, lever: Lever, alphas: Floats, gradient: Floats) -> Tuning:
        rows = []
        for direction in np.eye(len(alphas)):
            point = lever.coefficients(alphas + self.spread * direction)
            slope: Slope = yield DevSlope(point)
            rows.append((lever.gradient(slope) - gradient) / self.spread)
        hessian = np.array(rows)
        return (hessian + hessian.T) / 2

    def _search(
        self, lever: Lever, alphas: Floats, step: Floats, loss: float, descent: float
    ) -> Generator[Request, Any, float]:
        """Yield the step length by Armijo's rule; 0 if there is none."""
        if descent >= 0:
            return 0.0
        for length in 0.5 ** np.arange(self.halvings + 1):
            found: float = yield DevLoss(lever.coefficients(alphas + length * step))
            if found <= loss + 1e-4 * length * descent:
                return float(length)
        return 0.0


def _check(tuner: Tuner, whole: Mapping[str, int], finite: Sequence[str]) -> None:
    """Raise unless these fields are whole numbers from a least one on, or numbers not below 0."""
    for name, least in whole.items():
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
    """Return the tuner that a run file means: a name, or a name with arguments.

    >>> tuner_of({"name": "descent", "steps": 5})
    Descent(steps=5, lr=0.005, momentum=0.5, batch=None)
    """
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
    """-(|H| + μ)⁺ g with the least μ ≥ 0 that keeps it within reach; flat directions left out."""
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
