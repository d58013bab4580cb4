"""Policies whose distribution never changes."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from taskmix.policies.base import StoredPolicy, checked_sizes, distribution, in_order
from taskmix.run_info import RunInfo


class Constant(StoredPolicy):
    """Draws each task with a probability proportional to its weight."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        super().__init__(list(weights))
        values = np.array(list(weights.values()), dtype=np.float64)
        self._probabilities = distribution(values, self.name)


class Random(StoredPolicy):
    """Draws every task with the same probability.

    The baseline RANDOM of Glover and Hokamp (2019): π(k) = 1/N.

    Args:
        tasks: the names of the tasks.

    >>> from taskmix.rng import stream
    >>> policy = Random(["cola", "rte"])
    >>> policy.probabilities().tolist()
    [0.5, 0.5]
    >>> policy.ask(stream(1, "draws")).probability
    0.5
    """

    name = "random"

    def __init__(self, tasks: Sequence[str]) -> None:
        super().__init__(tasks)
        self._probabilities = distribution(np.ones(len(self.tasks)), "tasks")


class Fixed(Constant):
    """Draws from a given distribution, such as one learned from an earlier run.

    Args:
        probabilities: the probability of each task; they sum to 1, within 1e-6.

    >>> from taskmix.rng import stream
    >>> Fixed({"cola": 0.25, "rte": 0.75}).ask(stream(2, "draws")).probability
    0.75
    """

    name = "fixed"

    def __init__(self, probabilities: Mapping[str, float]) -> None:
        total = sum(probabilities.values())
        if not abs(total - 1) <= 1e-6:
            raise ValueError(f"probabilities: expected a sum of 1, found {total}")
        super().__init__(probabilities)

    @classmethod
    def for_run(cls, info: RunInfo, probabilities: Mapping[str, float]) -> Self:
        return cls(in_order(probabilities, info.tasks, "probabilities"))


class Temperature(Constant):
    """Draws a task in proportion to its size to the power 1/T.

    Temperature-scaled mixing (Raffel et al. 2020, section 3.5.2): p_k ∝ min(|D_k|, cap)^(1/T).
    T = 1 is size-proportional, T → ∞ is uniform; the cap limits the share of a huge task.

    Args:
        sizes: the number of training examples of each task.
        temperature: T, above 0.
        cap: larger tasks count as having this size; no limit if None.

    >>> Temperature({"rte": 2500, "sst2": 40000}, temperature=2).probabilities().tolist()
    [0.2, 0.8]
    >>> Temperature({"rte": 2500, "sst2": 40000}, temperature=1, cap=2500).probabilities().tolist()
    [0.5, 0.5]
    """

    name = "temperature"

    def __init__(
        self, sizes: Mapping[str, int], temperature: float, cap: int | None = None
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature: expected a number above 0, found {temperature}")
        if cap is not None and not cap > 0:
            raise ValueError(f"cap: expected a number above 0 or none, found {cap}")
        capped = {
            task: size if cap is None else min(size, cap)
            for task, size in checked_sizes(sizes).items()
        }
        # Relative to the largest, so that a small T cannot overflow.
        largest = max(capped.values(), default=1)
        super().__init__({k: (size / largest) ** (1 / temperature) for k, size in capped.items()})

    @classmethod
    def for_run(cls, info: RunInfo, **options: Any) -> Self:
        return cls(info.sizes, **options)


class TaskSize(Constant):
    """Draws a task in proportion to its number of training examples.

    The baseline TASK SIZE of Glover and Hokamp (2019): π(k) = |D_k| / Σ_j |D_j|.

    Args:
        sizes: the number of training examples of each task.

    >>> TaskSize({"rte": 2500, "sst2": 7500}).probabilities().tolist()
    [0.25, 0.75]
    """

    name = "task_size"

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__(checked_sizes(sizes))

    @classmethod
    def for_run(cls, info: RunInfo, **options: Any) -> Self:
        return cls(info.sizes, **options)
