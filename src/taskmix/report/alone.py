"""The single-task trainings of a comparison, read as runs that train all tasks in turn."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from taskmix.config import RunConfig, parse_stored, read_yaml
from taskmix.journal import Evaluation, Shares
from taskmix.records import UnitRecord
from taskmix.report.history import History
from taskmix.report.run_data import RunData, read_run
from taskmix.studies.compare import SETTINGS
from taskmix.studies.contestants import ALONE, merged_runs
from taskmix.training.folder import JOURNAL, Scores
from taskmix.training.objective import objective_value


def read_alone(study: Path) -> list[RunData]:
    """Return the single-task trainings of each seed as one run; none of a seed that lacks tasks."""
    if not (study / ALONE).is_dir() or not (study / SETTINGS).exists():
        return []
    text = (study / SETTINGS).read_text(encoding="utf-8")
    config = parse_stored(read_yaml(study / SETTINGS), str(study / SETTINGS))
    runs = []
    for seed in sorted((study / ALONE).glob("seed-*")):
        singles = [read_run(path.parent) for path in seed.glob(f"*/{JOURNAL}")]
        by_task = {run.history.tasks[0]: run for run in singles}
        if by_task.keys() == set(config.task_names):
            in_order = [by_task[task] for task in config.task_names]
            runs.append(_merged(seed, in_order, config, text))
    return runs


def _merged(folder: Path, runs: Sequence[RunData], config: RunConfig, text: str) -> RunData:
    history = _history([run.history for run in runs], config)
    results = [run.result for run in runs if run.result is not None]
    result = merged_runs(results, config.objective) if len(results) == len(runs) else None
    finished = all(run.finished for run in runs)
    return RunData(folder, history, text, finished, result, any(run.diverged for run in runs))


def _history(histories: Sequence[History], config: RunConfig) -> History:
    tasks, first = config.task_names, histories[0].opening
    budget = first.budget | {"steps": config.budget.steps}
    sizes = {task: h.opening.sizes[task] for task, h in zip(tasks, histories, strict=True)}
    return History(
        replace(first, tasks=tasks, sizes=sizes, budget=budget),
        shares=[Shares(1, [1 / len(tasks)] * len(tasks))],
        units=_in_turn([history.units for history in histories]),
        evaluations=[
            _together(same, config)
            for same in zip(*(history.evaluations for history in histories), strict=False)
        ],
    )


def _in_turn(units: Sequence[Sequence[UnitRecord]]) -> list[UnitRecord]:
    """Return the steps of all tasks, each with its number among them."""
    steps = sorted((unit for of_task in units for unit in of_task), key=lambda unit: unit.step)
    return [replace(unit, step=number) for number, unit in enumerate(steps, 1)]


def _together(evaluations: Sequence[Evaluation], config: RunConfig) -> Evaluation:
    """Return evaluations of single tasks, after equal parts of their budgets, as one of all."""
    by_task = dict(zip(config.task_names, evaluations, strict=True))
    scores = {task: evaluation.scores[task] for task, evaluation in by_task.items()}
    losses = {task: evaluation.losses[task] for task, evaluation in by_task.items()}
    objective = None
    if config.objective is not None:
        measured = {task: Scores(scores[task], {}, losses[task], examples=0) for task in by_task}
        objective = objective_value(config.objective, measured)
    return Evaluation(
        sum(evaluation.step for evaluation in evaluations),
        evaluations[0].split,
        mean(scores.values()),
        scores,
        losses,
        {task: evaluation.metrics.get(task, {}) for task, evaluation in by_task.items()},
        objective,
        sum(evaluation.forward for evaluation in evaluations),
        sum(evaluation.backward for evaluation in evaluations),
        sum(evaluation.seconds or 0.0 for evaluation in evaluations),
    )
