"""Aimed: prefers the target tasks, with a discount for repeated examples."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from taskmix.policies.base import StoredPolicy, distribution, target_tasks
from taskmix.policies.state import Array
from taskmix.run_info import RunInfo


class Aimed(StoredPolicy):
    """Draws the target tasks equally, discounted for repeated examples, and other tasks rarely.

    The targets are the tasks that a run is scored on. Without evidence that another task helps
    them, a batch of a target is the better choice. So, of N tasks, each of the targets T has the
    weight w_k = (1 - rest) / |T|, and each of the others w_k = rest / (N - |T|), so that a log of
    the run says something about them too.

    Repeated examples are worth less than new ones. Muennighoff et al. (2023) found that the value
    of an example falls as exp(-R / R*) with the number R of its repetitions, where R* is about 15.
    Let E_k be the number of epochs if the whole budget were spent on task k. Then

        p_k ∝ w_k exp(-max(0, p_k E_k - 1) / R*):

    a task's weight is discounted by the value of its examples in its last epoch. The share p_k is
    on both sides, because it decides how many epochs there are; the constructor solves for it. So
    a tiny target is drawn less often, and its remaining probability is redistributed, mostly to
    large tasks. If all tasks are targets and none is repeated, the policy is uniform.

    Args:
        tasks: the names of the tasks.
        targets: the target tasks; all if None. The default in a run file is the run's objective.
        rest: the total weight of the other tasks.
        epochs: E_k of each task; 0 if missing. The default in a run file follows from the budget.
        repeats: R*; None if repeated examples are worth as much as new ones.

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
        super().__init__(tasks)
        if not 0 <= rest < 1:
            raise ValueError(f"rest: expected a number from 0 up to 1, found {rest}")
        if repeats is not None and not repeats > 0:
            raise ValueError(f"repeats: expected a number above 0, found {repeats}")
        epochs = epochs or {}
        for task, count in epochs.items():
            if task not in self.tasks or not 0 <= count < math.inf:
                raise ValueError(
                    f"epochs, {task}: expected a number from 0 for a task of {list(tasks)},"
                    f" found {count}"
                )
        self._epochs = np.array([epochs.get(task, 0.0) for task in self.tasks], dtype=np.float64)
        self._targets = np.isin(self.tasks, target_tasks(targets, self.tasks))
        count = int(self._targets.sum())
        others = len(self.tasks) - count
        weights = np.where(
            self._targets, (1 - rest if others else 1.0) / count, rest / max(others, 1)
        )
        if repeats is not None:
            weights = _discounted(weights, self._epochs, repeats)
        self._probabilities = distribution(weights, self.name)

    @classmethod
    def for_run(
        cls,
        info: RunInfo,
        targets: Sequence[str] | None = None,
        epochs: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Self:
        return cls(
            info.tasks,
            info.targets if targets is None else targets,
            epochs=info.epochs if epochs is None else epochs,
            **options,
        )


def _discounted(weights: Array, epochs: Array, repeats: float) -> Array:
    """Return p_k = w_k exp(-λ - max(0, p_k E_k - 1) / R*), with the λ for which p sums to 1."""
    from scipy.optimize import brentq

    if not (weights * epochs > 1).any():
        return weights
    drawn = weights > 0
    logs, counts = np.log(weights[drawn]), epochs[drawn]
    # At the lower end a single share is above 1; at the upper end none is above its weight.
    lowest = float((logs - np.maximum(counts - 1, 0) / repeats).min()) - 1

    def excess(level: float) -> float:
        return float(_shares(logs - level, counts, repeats).sum()) - 1

    shares = np.zeros(len(weights))
    shares[drawn] = _shares(logs - brentq(excess, lowest, 0.0, xtol=1e-12), counts, repeats)
    return shares


def _shares(logs: Array, epochs: Array, repeats: float) -> Array:
    """Solve log p + max(0, p E - 1) / R* = logs for each task, and clip p to 1."""
    from scipy.special import wrightomega

    # After the first epoch, u = p E / R* satisfies u + log u = logs + log(E / R*) + 1 / R*, whose
    # solution is the Wright omega function.
    shares: Array = np.exp(np.minimum(logs, 0.0))
    repeated = (epochs > 1) & (logs + np.log(np.maximum(epochs, 1.0)) > 0)
    scale = epochs[repeated] / repeats
    shares[repeated] = wrightomega(logs[repeated] + np.log(scale) + 1 / repeats) / scale
    return np.minimum(shares, 1.0)
