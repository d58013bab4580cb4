"""Aimed: draws what the run is scored on, as long as it is not seen too often."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Constant, known_tasks
from taskmix.run_info import RunInfo

Array = NDArray[np.float64]


class Aimed(Constant):
    """Draws the tasks that a run is scored on alike, less where it repeats them, others a little.

    A task that is not scored is worth a batch only as far as it helps those that are, and without
    evidence a batch of these themselves is the better guess. So, of N tasks, each of the targets T
    has the weight w_k = (1 - rest) / |T|, and each of the others w_k = rest / (N - |T|).

    But a batch that was seen before is worth less each time. Muennighoff et al. (2023) found that
    the worth of an example falls as exp(-R / R*) with the number R of its repetitions, R* about 15.
    With E_k for how often the budget would go through the examples of task k if it got all of it,

        p_k ∝ w_k exp(-max(0, p_k E_k - 1) / R*):

    each task has the share that its last epoch is worth. A large target keeps the share of its
    weight; a tiny one is seen some dozens of times, and what it leaves goes to the others, large
    ones first. Where every task is scored and none is seen twice, this is the uniform policy.

    The little that the others get keeps them from being unknown: a log of such a run says what
    they do, which `taskmix improve` and the search of `taskmix autosem` can use.

    Args:
        tasks: the names of the tasks.
        targets: those that count; all if None. A run file's default is the run's objective.
        rest: the weight of the others together.
        epochs: E, by task; 0 where it is missing. A run file's default is what its budget says.
        repeats: R*; None if a repeated example is worth as much as a new one.

    >>> Aimed(["rte", "cb", "mnli", "noise"], ["rte", "cb"], rest=0.1).probabilities().tolist()
    [0.45, 0.45, 0.05, 0.05]
    >>> tiny = Aimed(["cb", "mnli"], ["cb"], epochs={"cb": 400, "mnli": 1})
    >>> tiny.probabilities().round(2).tolist()
    [0.17, 0.83]
    """

    name = "aimed"

    def __init__(
        self,
        tasks: Sequence[str],
        targets: Sequence[str] | None = None,
        rest: float = 0.05,
        epochs: Mapping[str, float] | None = None,
        repeats: float | None = 15.0,
    ) -> None:
        if not 0 <= rest < 1:
            raise ValueError(f"rest: expected a number from 0 up to 1, found {rest}")
        if repeats is not None and not repeats > 0:
            raise ValueError(f"repeats: expected a number above 0, found {repeats}")
        whole = dict.fromkeys(tasks, 0.0)
        for task, count in (epochs or {}).items():
            if task not in whole or not 0 <= count < math.inf:
                raise ValueError(
                    f"epochs, {task}: expected a number from 0 for a task of {list(tasks)},"
                    f" found {count}"
                )
            whole[task] = count
        chosen = set(known_tasks(targets, tasks, "targets"))
        others = len(tasks) - len(chosen)
        aimed = (1 - rest if others else 1.0) / len(chosen)
        weights = {task: aimed if task in chosen else rest / others for task in tasks}
        if repeats is not None:
            counts = np.array([whole[task] for task in weights])
            shares = _discounted(np.array([*weights.values()]), counts, repeats)
            weights = dict(zip(weights, shares.tolist(), strict=True))
        super().__init__(weights)

    @classmethod
    def for_run(
        cls,
        info: RunInfo,
        targets: Sequence[str] | None = None,
        epochs: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Self:
        """The policy that a run file means."""
        return cls(
            info.tasks,
            info.targets if targets is None else targets,
            epochs=info.epochs if epochs is None else epochs,
            **options,
        )


def _discounted(weights: Array, epochs: Array, repeats: float) -> Array:
    """Return the shares p_k = w_k exp(-λ - max(0, p_k E_k - 1) / R*), with the λ that sums to 1."""
    from scipy.optimize import brentq

    if not (weights * epochs > 1).any():
        return weights
    drawn = weights > 0
    logs, counts = np.log(weights[drawn]), epochs[drawn]
    # At the lower end one share alone is above 1; at the upper none is above its weight.
    lowest = float((logs - np.maximum(counts - 1, 0) / repeats).min()) - 1

    def excess(level: float) -> float:
        return float(_shares(logs - level, counts, repeats).sum()) - 1

    found = np.zeros(len(weights))
    found[drawn] = _shares(logs - brentq(excess, lowest, 0.0, xtol=1e-12), counts, repeats)
    return found


def _shares(logs: Array, epochs: Array, repeats: float) -> Array:
    """Solve log p + max(0, p E - 1) / R* = logs for each task; shares above 1 count as 1.

    Beyond the first epoch, u = p E / R* has u + log u = logs + log(E / R*) + 1 / R*, whose solution
    is the Wright omega function.
    """
    from scipy.special import wrightomega

    shares: Array = np.exp(np.minimum(logs, 0.0))
    again = (epochs > 1) & (logs + np.log(np.maximum(epochs, 1.0)) > 0)
    scale = epochs[again] / repeats
    shares[again] = wrightomega(logs[again] + np.log(scale) + 1 / repeats) / scale
    return np.minimum(shares, 1.0)
