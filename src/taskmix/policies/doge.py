"""DoGE: prefers the tasks whose gradients align with the dev gradients."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from taskmix.policies.base import StoredPolicy, bounded, distribution, target_tasks
from taskmix.policies.signals import Alignment, Draw, Outcome, Signal
from taskmix.run_info import RunInfo

#: Larger inner products and norms of gradients are clipped.
_MAX_PRODUCT = 1e12
#: No weight falls below e^-50 of the largest, so that it can rise again.
_MAX_LOG_RATIO = 50.0
_EPSILON = 1e-6


class DoGE(StoredPolicy):
    """Prefers the tasks whose gradients lower the dev losses.

    Fan et al. (2023). Let g_i be the gradient of a batch of task i, and g_j the dev gradients of
    the target tasks, each clipped. Then

        s_i = Σ_j ⟨g_i, g_j⟩ / (mean ‖g‖ + 10⁻⁶), clipped to [0, c],
        w ← softmax(log w + λ s),    w ← (1 - ε) w + ε/K.

    At every step the authors compute the gradient of every task and scale it by w. Here a batch has
    one task, drawn from a mixture of w and the uniform distribution. Every `every` draws, s is
    measured for the task drawn; the other tasks keep their last s, just as a task that is not in a
    batch keeps its gradient in the authors' code. Until every task has been measured, w is uniform.

    In the paper, the mean of w is used to train another model; `diagnostics` returns it.

    Args:
        tasks: the names of the tasks.
        every: the number of draws between two measurements, each of which is a forward and a
            backward pass over the dev examples.
        rate: λ, the authors' lr/μ; 0.05 is a learning rate of 5e-4 with their μ of 0.01.
        clip: c, the maximum of s_i.
        epsilon: ε; the authors use 0.
        explore: the weight of the uniform distribution in the mixture.
        targets: the target tasks; all if None. The default in a run file is the run's objective.
        examples: the number of dev examples of each target, the same ones every time; all if None.

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
    beliefs: ClassVar = {"weights": "the largest weight"}
    _saved = ("_updates", "_products", "_lengths", "_newest", "_weights", "_mean")

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
        chosen = target_tasks(targets, self.tasks)
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
        return cls(info.tasks, targets=info.targets if targets is None else targets, **options)

    def due(self, draw: Draw) -> frozenset[Signal]:
        return self.needs if draw.number % self._every == 0 else frozenset()

    def tell(self, outcome: Outcome) -> None:
        draw = outcome.draw
        product = bounded(outcome.alignment, _MAX_PRODUCT)
        length = bounded(outcome.gradient, _MAX_PRODUCT)
        late = draw.number <= self._newest[draw.index]
        if product is None or length is None or length < 0 or late:
            return
        self._newest[draw.index] = draw.number
        self._products[draw.index], self._lengths[draw.index] = product, length
        if self._newest.all():
            self._update()

    def _update(self) -> None:
        aligned = self._targets * self._products / (self._lengths.mean() + _EPSILON)
        logs = np.log(self._weights) + self._rate * np.clip(aligned, 0.0, self._clip)
        weights = np.exp(np.maximum(logs - logs.max(), -_MAX_LOG_RATIO))
        count = len(self.tasks)
        self._weights = (1 - self._epsilon) * weights / weights.sum() + self._epsilon / count
        self._updates += 1
        self._mean = self._mean + (self._weights - self._mean) / self._updates
        self._spread()

    def _spread(self) -> None:
        uniform = self._explore / len(self.tasks)
        self._probabilities = distribution((1 - self._explore) * self._weights + uniform, self.name)

    def diagnostics(self) -> dict[str, Any]:
        return {
            "mean": self._named(self._mean),
            "weights": self._named(self._weights),
        }

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._spread()
