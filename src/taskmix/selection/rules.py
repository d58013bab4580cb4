"""How candidates of different tasks are compared: the paper's rule, and its code's."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Rule = Callable[[Sequence[Scores]], list[Scores]]
"""From each task's normalised scores to utilities that are compared across tasks."""


def paper_rule(scores: Sequence[Scores]) -> list[Scores]:
    """U = H / (H' Ĥ), equations 4 and 5 of Pilault et al. (2021).

    The scores are H / H' already. Ĥ is the same number for all candidates of all tasks and cannot
    change who is chosen, so it is left out.
    """
    return list(scores)


def code_rule(scores: Sequence[Scores]) -> list[Scores]:
    """U = H/H' · mean(H/H') / max over tasks of mean(H/H'), as the authors' code has it.

    A task's mean uncertainty, relative to the most uncertain task, counts beside the example's own:
    this is what favours uncertain tasks, as the paper says of its rule.
    """
    means = [float(of_task.mean()) if len(of_task) else 0.0 for of_task in scores]
    most = max(means) or 1.0
    return [of_task * (mean / most) for of_task, mean in zip(scores, means, strict=True)]


RULES: dict[str, Rule] = {"code": code_rule, "paper": paper_rule}
