"""The objective of a run, by which its models are compared."""

from collections.abc import Iterable, Mapping, Sequence

from taskmix.config import Objective
from taskmix.errors import unknown
from taskmix.journal import Evaluation
from taskmix.training.folder import Scores


def check_objective(objective: Objective | None, tasks: Iterable[str]) -> None:
    names = list(tasks)
    for name in objective.tasks if objective is not None else ():
        if name not in names:
            raise unknown("task", name, names, "objective")


def objective_value(objective: Objective, scores: Mapping[str, Scores]) -> float:
    """Return the value of an objective; higher is better, so losses are negated."""
    chosen = [scores[name] for name in objective.tasks]
    if objective.measure == "loss":
        return -sum(scored.loss for scored in chosen) / len(chosen)
    return sum(scored.score for scored in chosen) / len(chosen)


def improves(objective: float, best: float | None) -> bool:
    """Return whether an objective is better than the best so far; a tie is not."""
    return best is None or objective > best


def kept_evaluation(evaluations: Sequence[Evaluation], keep: str = "best") -> Evaluation:
    if keep == "last":
        return evaluations[-1]
    kept, best = evaluations[0], None
    for evaluation in evaluations:
        # Journals of other hosts may have no objective.
        objective = evaluation.score if evaluation.objective is None else evaluation.objective
        if improves(objective, best):
            kept, best = evaluation, objective
    return kept
