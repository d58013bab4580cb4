"""DoGE: shares by how a task's gradient lies to the mean dev gradient."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Draw, Outcome, Policy, bounded, distribution, known_tasks
from taskmix.policies.signals import Alignment, Signal
from taskmix.run_info import RunInfo

Array = NDArray[np.float64]

#: No gradient of a model that learns has a larger inner product with another.
_LARGEST = 1e12
#: A weight that has fallen to e^-50 of another falls no further, so that it can rise again.
_DEEPEST = 50.0
_TINY = 1e-6


class DoGE(Policy):
    """Draws tasks in favour of those whose gradients lower the dev losses.

    Fan et al. (2023). With g_i the gradient of a batch of task i, and g_j the dev gradients of the
    targets, each clipped,

        s_i = Σ_j ⟨g_i, g_j⟩ / (mean ‖g‖ + 10⁻⁶), brought to [0, c],
        w ← softmax(log w + λ s),    w ← (1 - ε) w + ε/K.

    λ is the authors' lr/μ. They compute all gradients at every step, of batches that mix the tasks
    uniformly, and scale each task's gradient by w. Here a batch has one task, drawn from w itself
    beside a uniform part, and one s is measured every `every` draws; the other tasks keep the one
    that they had, as in the authors' code a task that is not in a batch keeps its gradient. Until
    there is one of each task, draws are uniform.

    Their result is the mean of w, with which another model is trained; it is in `diagnostics`.
    A gradient that points the other way counts as 0: a task that does harm only fails to rise.

    Args:
        tasks: the names of the tasks.
        every: draws between two measurements, each a forward and a backward pass over the dev
            examples.
        rate: λ; 0.05 is a learning rate of 5e-4 with the authors' μ of 0.01.
        clip: c.
        epsilon: ε; the authors have 0.
        explore: the share of the draws that is uniform, so that every task is measured.
        targets: the tasks whose dev gradients count; all if None. A run file's default is the run's
            objective.
        examples: dev examples of each, the same ones each time; all if None.

    >>> from taskmix.rng import stream
    >>> policy, rng = DoGE(["helps", "harms"], every=1), stream(1, "draws")
    >>> for _ in range(40):
    ...     draw = policy.ask(rng)
    ...     product = 0.5 if draw.task == "helps" else -0.5
    ...     policy.tell(Outcome(draw, alignment=product, gradient=1.0))
    >>> policy.probabilities().round(2).tolist()
    [0.84, 0.16]
    """

    name = "doge"

    def __init__(
        self,
        tasks: Sequence[str],
        every: int = 10,
        rate: float = 0.05,
        clip: float = 5.0,
        epsilon: float = 0.0,
        explore: float = 0.1,
        targets: Sequence[str] | None = None,
        examples: int | None = 16,
    ) -> None:
        super().__init__(tasks)
        if every < 1 or (examples is not None and examples < 1):
            raise ValueError(f"every, examples: expected at least 1, found {every}, {examples}")
        if not rate > 0 or not clip > 0:
            raise ValueError(f"rate, clip: expected numbers above 0, found {rate}, {clip}")
        if not 0 <= epsilon < 1 or not 0 <= explore <= 1:
            raise ValueError(
                "epsilon, explore: expected 0 <= epsilon < 1 and 0 <= explore <= 1,"
                f" found {epsilon}, {explore}"
            )
        chosen = known_tasks(targets, self.tasks, "targets")
        self.needs = frozenset({Alignment(chosen, examples)})
        self._targets = len(chosen)
        self._every, self._rate, self._clip = every, rate, clip
        self._epsilon, self._explore = epsilon, explore
        count = len(self.tasks)
        self._products, self._lengths = np.zeros(count), np.zeros(count)
        self._newest = np.zeros(count, dtype=np.int64)
        self._updates = 0
        self._weights = np.full(count, 1 / count)
        self._mean = self._weights
        self._spread()

    @classmethod
    def for_run(cls, info: RunInfo, targets: Sequence[str] | None = None, **options: Any) -> Self:
        """The policy that a run file means."""
        return cls(info.tasks, targets=info.targets if targets is None else targets, **options)

    def probabilities(self) -> Array:
        """Return the weights, beside the part of the draws that is uniform."""
        return self._probabilities

    def due(self, draw: Draw) -> frozenset[Signal]:
        """Return the alignment, for every so many draws."""
        return self.needs if draw.number % self._every == 0 else frozenset()

    def tell(self, outcome: Outcome) -> None:
        """Learn from the alignment, unless a later one of the task is known."""
        draw = outcome.draw
        product = bounded(outcome.alignment, _LARGEST)
        length = bounded(outcome.gradient, _LARGEST)
        if product is None or length is None or length < 0:
            return
        if draw.number <= self._newest[draw.index]:
            return
        self._newest[draw.index] = draw.number
        self._products[draw.index], self._lengths[draw.index] = product, length
        if self._newest.all():
            self._update()

    def _update(self) -> None:
        aligned = self._targets * self._products / (self._lengths.mean() + _TINY)
        logs = np.log(self._weights) + self._rate * np.clip(aligned, 0.0, self._clip)
        weights = np.exp(np.maximum(logs - logs.max(), -_DEEPEST))
        count = len(self.tasks)
        self._weights = (1 - self._epsilon) * weights / weights.sum() + self._epsilon / count
        self._updates += 1
        self._mean = self._mean + (self._weights - self._mean) / self._updates
        self._spread()

    def _spread(self) -> None:
        uniform = self._explore / len(self.tasks)
        self._probabilities = distribution((1 - self._explore) * self._weights + uniform, self.name)

    def diagnostics(self) -> dict[str, Any]:
        """Return the mean of the weights so far, the authors' result, and the latest ones."""
        return {
            "mean": dict(zip(self.tasks, self._mean.tolist(), strict=True)),
            "weights": dict(zip(self.tasks, self._weights.tolist(), strict=True)),
        }

    def _state(self) -> dict[str, Any]:
        return {"updates": self._updates} | {
            name: getattr(self, f"_{name}").tolist() for name in _ARRAYS
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._updates = state["updates"]
        for name in _ARRAYS:
            dtype = getattr(self, f"_{name}").dtype
            setattr(self, f"_{name}", np.array(state[name], dtype=dtype))
        self._spread()


_ARRAYS = ("products", "lengths", "newest", "weights", "mean")
