"""The policy of the concatenated training sets."""

from collections.abc import Mapping
from typing import Any, Self

from taskmix.policies.base import Constant, checked_sizes
from taskmix.run_info import RunInfo


class TaskSize(Constant):
    """Draws a task in proportion to its training examples, as a shuffled union of all would.

    The baseline TASK SIZE of Glover and Hokamp (2019): π(k) = |D_k| / Σ_j |D_j|.

    Args:
        sizes: training examples of each task.

    >>> TaskSize({"rte": 2500, "sst2": 7500}).probabilities().tolist()
    [0.25, 0.75]
    """

    name = "task_size"

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__(checked_sizes(sizes))

    @classmethod
    def for_run(cls, info: RunInfo, **options: Any) -> Self:
        """Takes the sizes from the run."""
        return cls(info.sizes, **options)
