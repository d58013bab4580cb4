"""What a run is for: the value by which models are compared."""

from collections.abc import Iterable, Mapping

from taskmix.config import Objective
from taskmix.errors import unknown
from taskmix.training.folder import Scores


def check_objective(objective: Objective | None, tasks: Iterable[str]) -> None:
    """Raise if the objective names a task that the run does not have."""
    names = list(tasks)
    for name in objective.tasks if objective is not None else ():
        if name not in names:
            raise unknown("task", name, names, "objective")


def objective_value(objective: Objective, scores: Mapping[str, Scores]) -> float:
    """Return the value of an objective; higher is better, so a loss counts with its sign turned."""
    chosen = [scores[name] for name in objective.tasks]
    if objective.measure == "loss":
        return -sum(each.loss for each in chosen) / len(chosen)
    return sum(each.score for each in chosen) / len(chosen)
