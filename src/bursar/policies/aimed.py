"""Aimed: draws what the run is scored on."""

from collections.abc import Sequence
from typing import Any, Self

from bursar.policies.base import Constant, known_tasks
from bursar.run_info import RunInfo


class Aimed(Constant):
    """Draws the tasks that a run is scored on alike, and all others a little.

    A task that is not scored is worth a batch only as far as it helps those that are, and without
    evidence a batch of these themselves is the better guess:

        p_k = (1 - rest) / |T| for the targets T, rest / (N - |T|) for the others.

    The little that the others get keeps them from being unknown: a log of such a run says what
    they do, which `bursar improve` and the search of `bursar autosem` can use. Where every task is
    scored, this is the uniform policy.

    Args:
        tasks: the names of the tasks.
        targets: those that count; all if None. A run file's default is the run's objective.
        rest: the share of the draws that goes to the others.

    >>> Aimed(["rte", "cb", "mnli", "noise"], ["rte", "cb"], rest=0.1).probabilities().tolist()
    [0.45, 0.45, 0.05, 0.05]
    """

    name = "aimed"

    def __init__(
        self, tasks: Sequence[str], targets: Sequence[str] | None = None, rest: float = 0.05
    ) -> None:
        if not 0 <= rest < 1:
            raise ValueError(f"rest: expected a number from 0 up to 1, found {rest}")
        chosen = known_tasks(targets, tasks, "targets")
        others = len(tasks) - len(chosen)
        aimed = (1 - rest if others else 1.0) / len(chosen)
        super().__init__({task: aimed if task in chosen else rest / others for task in tasks})

    @classmethod
    def for_run(cls, info: RunInfo, targets: Sequence[str] | None = None, **options: Any) -> Self:
        """The policy that a run file means."""
        return cls(info.tasks, info.targets if targets is None else targets, **options)
