"""Task sizes, flattened by a temperature."""

from collections.abc import Mapping
from typing import Any, Self

from taskmix.policies.base import Constant, checked_sizes
from taskmix.run_info import RunInfo


class Temperature(Constant):
    """Draws a task in proportion to a root of its size.

    Temperature-scaled mixing (Raffel et al. 2020, section 3.5.2): p_k ∝ min(|D_k|, cap)^(1/T).
    T = 1 is the task size, T → ∞ is uniform; the cap keeps one huge task from drowning the rest.

    Args:
        sizes: training examples of each task.
        temperature: T, above 0.
        cap: the size beyond which a task counts as no larger; no cap if None.

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
        """Takes the sizes from the run."""
        return cls(info.sizes, **options)
