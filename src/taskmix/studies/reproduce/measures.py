"""What the recipes measure of a finished run."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from taskmix.errors import UserError
from taskmix.journal import Evaluation, Shares, read_latest
from taskmix.records import UnitRecord
from taskmix.training.folder import JOURNAL, Finished, config_of

if TYPE_CHECKING:
    from taskmix.weighting.base import Round

EARLY = 0.1
"""The part of a run whose composition is measured."""

Measure = Callable[[Finished, Path], Mapping[str, float]]
"""Returns the values of a finished run by part; the part `""` has the contestant's name alone."""


def score(run: Finished, folder: Path) -> dict[str, float]:
    return {"": run.score if run.objective is None else run.objective}


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
    """The posterior means of Thompson sampling at the end of a run."""
    from taskmix.config import build_decider
    from taskmix.policies import Outcome, Thompson
    from taskmix.policies.base import Step
    from taskmix.training.prepare import run_info_before

    config = config_of(folder)
    policy = build_decider(config, run_info_before(config))
    if not isinstance(policy, Thompson):
        raise UserError(f"{folder}: expected a run of thompson, found {config.decider['name']}")
    for record in read_latest(folder / JOURNAL):
        if isinstance(record, Step):
            draw = policy.replay(policy.tasks.index(record.task))
            policy.tell(Outcome(draw, score=record.score))
    return {utility.task: utility.mean for utility in policy.utilities()}


def weights(run: Finished, folder: Path) -> dict[str, float]:
    """The weights of tasks that a weighting ends with, as parts of their sum."""
    *_, last = _rounds(folder)
    total = sum(last.weights.values())
    return {task: value / total for task, value in last.weights.items()}


def _rounds(folder: Path) -> "Iterator[Round]":
    from taskmix.weighting.base import Round

    return (record for record in read_latest(folder / JOURNAL) if isinstance(record, Round))


def composition(run: Finished, folder: Path) -> dict[str, float]:
    """The shares of the tasks in the first tenth of a run's steps."""
    steps = [record for record in read_latest(folder / JOURNAL) if isinstance(record, UnitRecord)]
    early = steps[: max(1, round(EARLY * len(steps)))]
    tasks = config_of(folder).task_names
    return {task: fmean(record.shares().get(task, 0.0) for record in early) for task in tasks}


def used(run: Finished, folder: Path) -> dict[str, float]:
    """The share of the training examples that a selector has used."""
    from taskmix.selection.base import SelectionStep

    steps = [r for r in read_latest(folder / JOURNAL) if isinstance(r, SelectionStep)]
    return {"used": steps[-1].used}


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
    records: list[Any] = read_latest(folder / JOURNAL)
    return [r for r in records if isinstance(r, Evaluation) and r.split == "dev"]


def roughness(run: Finished, folder: Path) -> dict[str, float]:
    """How much the probabilities of the policy change from one change to the next."""
    records = [r.shares for r in read_latest(folder / JOURNAL) if isinstance(r, Shares)]
    changes = [float(np.abs(np.subtract(a, b)).sum()) / 2 for a, b in pairwise(records)]
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
