"""What each task was given of a run's budget."""

from collections import Counter
from dataclasses import dataclass

from bursar.report.history import History


@dataclass(frozen=True)
class Exposure:
    """What a task was given.

    Args:
        share: its share of the draws, or of the examples where a selector chose.
        examples: that it was trained on; None where the journal does not say.
        epochs: how often that is its training set.
    """

    share: float
    examples: int | None
    epochs: float | None


def exposures(history: History) -> dict[str, Exposure]:
    """What each task was given; empty where nothing was drawn or chosen."""
    examples: Counter[str] = Counter()
    draws: Counter[str] = Counter()
    for step in history.steps:
        draws[step.task] += 1
        examples[step.task] += step.examples or 0
    for selection in history.selections:
        draws.update(selection.chosen)
        examples.update(selection.chosen)
    total = draws.total()
    if not total:
        return {}
    known = examples.total() > 0
    return {
        task: _exposure(
            draws[task] / total, examples[task] if known else None, history.opening.sizes.get(task)
        )
        for task in history.tasks
    }


def _exposure(share: float, examples: int | None, size: int | None) -> Exposure:
    epochs = examples / size if examples is not None and size else None
    return Exposure(share, examples, epochs)
