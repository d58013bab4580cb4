"""What each task was given of a run's budget."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from taskmix.report.history import History


@dataclass(frozen=True)
class Exposure:
    """What a task was given.

    Args:
        share: its mean part in a unit of the budget.
        examples: that it was trained on; None where the journal does not say.
        epochs: how often that is its training set.
    """

    share: float
    examples: int | None
    epochs: float | None


def exposures(history: History) -> dict[str, Exposure]:
    """Return what each task was given; empty before anything was spent."""
    if not history.units:
        return {}
    examples: Counter[str] = Counter()
    shares: defaultdict[str, float] = defaultdict(float)
    for unit in history.units:
        examples.update(unit.examples_of())
        for task, share in unit.shares().items():
            shares[task] += share / len(history.units)
    known = examples.total() > 0
    return {
        task: _exposure(
            shares[task], examples[task] if known else None, history.opening.sizes.get(task)
        )
        for task in history.tasks
    }


def _exposure(share: float, examples: int | None, size: int | None) -> Exposure:
    epochs = examples / size if examples is not None and size else None
    return Exposure(share, examples, epochs)
