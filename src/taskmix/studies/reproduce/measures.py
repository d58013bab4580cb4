"""What the recipes measure of a finished run."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from taskmix.errors import UserError
from taskmix.journal import (
    Evaluation,
    Round,
    SelectionStep,
    Shares,
    read_latest,
    read_only,
    replayed,
)
from taskmix.records import UnitRecord, normalised
from taskmix.training.folder import JOURNAL, Finished, config_of

OF_TASK = " score"
"""The end of the part that is the score of one task."""
EARLY_PART = 0.1
"""The part of a run whose composition is measured."""

Measure = Callable[[Finished, Path], Mapping[str, float]]
"""Returns the values of a finished run by part; the part `""` has the contestant's name alone."""


def score(run: Finished, folder: Path) -> dict[str, float]:
    return {"": run.score if run.objective is None else run.objective}


def tasks(run: Finished, folder: Path) -> dict[str, float]:
    """The score of each task."""
    return {f"{task}{OF_TASK}": scores.score for task, scores in run.tasks.items()}


def sigma(run: Finished, folder: Path) -> dict[str, float]:
    """Task σ: the standard deviation of all metrics of all tasks (Pilault et al. 2021)."""
    from taskmix.studies.analyse import task_sigma

    return {"sigma": task_sigma({task: scores.metrics for task, scores in run.tasks.items()})}


def groups(run: Finished, folder: Path) -> dict[str, float]:
    """The mean scores of the tasks of a benchmark: `glue/rte` belongs to `glue`."""
    by_group: dict[str, list[float]] = {}
    for task, scores in run.tasks.items():
        by_group.setdefault(task.partition("/")[0], []).append(scores.score)
    return {group: fmean(values) for group, values in by_group.items()}


def auc(run: Finished, folder: Path) -> dict[str, float]:
    """The mean area under the ROC curve of binary tasks, on the dev rows of the evaluations."""
    from sklearn.metrics import roc_auc_score

    from taskmix.training.evaluation import predict
    from taskmix.training.inference import load_run
    from taskmix.training.prepare import read_split

    trained, examples = load_run(folder), config_of(folder).evaluate.examples
    device = next(trained.model.parameters()).device
    areas = []
    for task in trained.tasks.values():
        split = read_split(task, "dev", trained.tokenizer).at_most(examples)
        predicted, _ = predict(trained.model, task, split, 64, device)
        labels = split.items.dense["labels"]
        areas.append(float(roc_auc_score(labels, [p[1] for p in predicted])))
    return {"auc": fmean(areas)}


def shares(run: Finished, folder: Path) -> dict[str, float]:
    """The probabilities of a fixed policy."""
    return dict(config_of(folder).decider["probabilities"])


def utility(run: Finished, folder: Path) -> dict[str, float]:
    """The posterior means of Thompson sampling at the end of a run, all evidence decayed."""
    from taskmix.config import build_decider
    from taskmix.policies import Thompson
    from taskmix.training.prepare import run_info_before

    config = config_of(folder)
    policy = build_decider(config, run_info_before(config))
    if not isinstance(policy, Thompson):
        raise UserError(f"{folder}: expected a run of thompson, found {config.decider['name']}")
    means: dict[str, float] = replayed(policy, folder / JOURNAL).diagnostics()["utilities"]
    return means


def weights(run: Finished, folder: Path) -> dict[str, float]:
    """The weights of tasks that a weighting ends with, as parts of their sum."""
    return normalised(read_only(folder / JOURNAL, Round)[-1].weights)


def composition(run: Finished, folder: Path) -> dict[str, float]:
    """The shares of the tasks in the first tenth of a run's steps."""
    steps = [record for record in read_latest(folder / JOURNAL) if isinstance(record, UnitRecord)]
    early = steps[: max(1, round(EARLY_PART * len(steps)))]
    tasks = config_of(folder).task_names
    return {task: fmean(record.shares().get(task, 0.0) for record in early) for task in tasks}


def used(run: Finished, folder: Path) -> dict[str, float]:
    """The share of the training examples that a selector has used."""
    return {"used": read_only(folder / JOURNAL, SelectionStep)[-1].used}


def forgetting(run: Finished, folder: Path) -> dict[str, float]:
    """How far the scores at the end are below the best of the run, in the mean over the tasks."""
    scores = [evaluation.scores for evaluation in _evaluations(folder)]
    lost = [max(s[task] for s in scores) - scores[-1][task] for task in scores[-1]]
    return {"forgetting": fmean(lost)}


def spread(run: Finished, folder: Path) -> dict[str, float]:
    """How far apart the tasks' lowest dev losses are, as a part of the run."""
    evaluations = _evaluations(folder)
    places = [
        min(evaluations, key=lambda evaluation, t=task: evaluation.losses[t]).step  # type: ignore[misc]
        for task in evaluations[-1].losses
    ]
    return {"spread": (max(places) - min(places)) / evaluations[-1].step}


def _evaluations(folder: Path) -> list[Evaluation]:
    return [e for e in read_only(folder / JOURNAL, Evaluation) if e.split == "dev"]


def roughness(run: Finished, folder: Path) -> dict[str, float]:
    """How much the probabilities of the policy change from one change to the next."""
    rows = [record.shares for record in read_only(folder / JOURNAL, Shares)]
    changes = [float(np.abs(np.subtract(a, b)).sum()) / 2 for a, b in pairwise(rows)]
    return {"roughness": fmean(changes) if changes else 0.0}


def similarity(run: Finished, folder: Path) -> dict[str, float]:
    """The mean covariance similarity of tasks before and after the conditional alignment."""
    from taskmix.studies.analyse import analyse

    result = analyse(folder)
    if result.before is None or result.after is None:
        raise UserError(f"{folder}: expected a task-conditioned model, found a plain one")
    other = ~np.eye(len(result.tasks), dtype=bool)
    return {
        "before": float(result.before[other].mean()),
        "after": float(result.after[other].mean()),
    }


MEASURES: dict[str, Measure] = {
    measure.__name__: measure
    for measure in (
        score,
        tasks,
        sigma,
        groups,
        auc,
        shares,
        utility,
        weights,
        composition,
        used,
        forgetting,
        spread,
        roughness,
        similarity,
    )
}
"""By their names in a recipe's `measures`."""
