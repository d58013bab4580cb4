"""What recipes measure of a run, against values computed from its folder by hand."""

import os
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

from taskmix import RunConfig, run
from taskmix.errors import UserError
from taskmix.journal import Evaluation, Shares, read_latest
from taskmix.policies.base import Step
from taskmix.studies.reproduce.measures import MEASURES
from taskmix.tasks.catalogue import find
from taskmix.training.folder import JOURNAL, Finished
from taskmix.training.inference import load_run
from taskmix.weighting.base import Round

DIGITS = ["digits/left", "digits/right"]


def trained(folder: Path, **changes: Any) -> Finished:
    values: dict[str, Any] = {
        "tasks": [{"name": name, "rows": 80} for name in DIGITS],
        "budget": {"steps": 20, "batch": 8, "rounds": 2},
        "optimizer": {"lr": 1e-2},
        "evaluate": {"every": 5, "examples": 40},
        "policy": "random",
    }
    return run(RunConfig(**values | changes), folder)


def measured(name: str, result: Finished, folder: Path) -> dict[str, float]:
    return dict(MEASURES[name](result, folder))


@pytest.fixture(scope="module")
def random_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    folder = tmp_path_factory.mktemp("random")
    return trained(folder), folder


def test_score_sigma_and_groups(random_run: tuple[Finished, Path]) -> None:
    result, folder = random_run
    scores = [of_task.score for of_task in result.tasks.values()]
    assert measured("score", result, folder) == {"": pytest.approx(fmean(scores))}
    of_task = {f"{task} score": result.tasks[task].score for task in DIGITS}
    assert measured("tasks", result, folder) == of_task
    assert measured("groups", result, folder) == {"digits": pytest.approx(fmean(scores))}
    assert measured("sigma", result, folder) == {"sigma": pytest.approx(pstdev(scores))}


def test_composition_forgetting_and_spread(random_run: tuple[Finished, Path]) -> None:
    result, folder = random_run
    records = read_latest(folder / JOURNAL)
    first, second, *_ = [record.task for record in records if isinstance(record, Step)]
    shares = {task: (first, second).count(task) / 2 for task in DIGITS}
    assert measured("composition", result, folder) == shares
    evaluations = [record for record in records if isinstance(record, Evaluation)]
    assert len(evaluations) == 4
    lost, lowest = [], []
    for task in DIGITS:
        scores = [evaluation.scores[task] for evaluation in evaluations]
        losses = [evaluation.losses[task] for evaluation in evaluations]
        lost.append(max(scores) - scores[-1])
        lowest.append(5 * (1 + losses.index(min(losses))))
    assert measured("forgetting", result, folder) == {"forgetting": pytest.approx(fmean(lost))}
    assert measured("spread", result, folder) == {"spread": abs(lowest[0] - lowest[1]) / 20}


def test_roughness_is_the_mean_change_of_the_distribution(
    random_run: tuple[Finished, Path], tmp_path: Path
) -> None:
    assert measured("roughness", *random_run) == {"roughness": 0.0}
    policy = {"name": "active", "every": 5, "passes": 2, "examples": 10}
    result = trained(tmp_path, policy=policy)
    rows = [r.shares[0] for r in read_latest(tmp_path / JOURNAL) if isinstance(r, Shares)]
    assert len(rows) > 1
    expected = fmean(abs(one - other) for one, other in pairwise(rows))
    assert measured("roughness", result, tmp_path) == {"roughness": pytest.approx(expected)}


def test_weights_are_parts_of_their_sum(tmp_path: Path) -> None:
    weighting = {"name": "alpha_vil", "target": DIGITS[0]}
    result = trained(tmp_path, policy=None, weighting=weighting, evaluate={"every": 1})
    *_, last = [r for r in read_latest(tmp_path / JOURNAL) if isinstance(r, Round)]
    total = sum(last.weights.values())
    expected = {task: pytest.approx(last.weights[task] / total) for task in DIGITS}
    assert measured("weights", result, tmp_path) == expected


def test_utilities_are_those_of_the_successes_which_every_round_forgets(
    tmp_path: Path, random_run: tuple[Finished, Path]
) -> None:
    decay = 0.2
    policy = {"name": "thompson", "primary": DIGITS[0], "batches": 1, "decay": decay}
    result = trained(tmp_path, policy=policy)
    steps = [r for r in read_latest(tmp_path / JOURNAL) if isinstance(r, Step)]
    a, b = {DIGITS[0]: 2.0, DIGITS[1]: 1.0}, dict.fromkeys(DIGITS, 1.0)
    before = 0.0
    for step in steps:
        assert step.score is not None
        success = step.score >= before
        for task in DIGITS:
            a[task] = (1 - decay) * a[task] + decay
            b[task] = (1 - decay) * b[task] + decay
        a[step.task] += success
        b[step.task] += not success
        before = step.score
    expected = {task: pytest.approx(a[task] / (a[task] + b[task])) for task in DIGITS}
    assert measured("utility", result, tmp_path) == expected
    with pytest.raises(UserError, match="expected a run of thompson"):
        measured("utility", *random_run)


def test_shares_and_used(tmp_path: Path) -> None:
    probabilities = {DIGITS[0]: 0.75, DIGITS[1]: 0.25}
    fixed = {"name": "fixed", "probabilities": probabilities}
    assert (
        measured("shares", trained(tmp_path / "a", policy=fixed), tmp_path / "a") == probabilities
    )
    folder = tmp_path / "b"
    result = trained(folder, policy=None, selection="mt_uncertainty")
    assert 0 < measured("used", result, folder)["used"] <= 1


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
def test_auc_is_the_chance_that_a_positive_is_ranked_higher(tmp_path: Path) -> None:
    result = trained(
        tmp_path,
        tasks=[{"name": "glue/rte", "rows": 60}],
        model={"encoder": "small", "width": 16, "attention_heads": 2, "max_length": 16},
        evaluate={"every": 20},
    )
    rows = load_run(tmp_path).predictions("glue/rte", "dev")
    task = find("glue/rte", Path(os.environ["TASKMIX_DATA"]))
    labels = [row.label for row in task.split("dev").rows()]  # type: ignore[union-attr]
    _, positive = task.kind.labels  # type: ignore[attr-defined]
    ranked = [row.probability[positive] for row in rows]
    ones = [p for p, label in zip(ranked, labels, strict=True) if label == positive]
    zeros = [p for p, label in zip(ranked, labels, strict=True) if label != positive]
    wins = [(p > q) + 0.5 * (p == q) for p in ones for q in zeros]
    assert measured("auc", result, tmp_path)["auc"] == pytest.approx(fmean(wins), abs=1e-6)


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
def test_similarity_needs_a_conditioned_model(
    tmp_path: Path, random_run: tuple[Finished, Path]
) -> None:
    result = trained(
        tmp_path,
        tasks=[{"name": "glue/rte", "rows": 60}, {"name": "glue/mrpc", "rows": 60}],
        model={"encoder": "minilm", "layers": 2, "max_length": 16, "conditional": True},
        budget={"steps": 2, "batch": 4},
    )
    found = measured("similarity", result, tmp_path)
    assert set(found) == {"before", "after"}
    assert all(0 <= value <= 1 + 1e-6 for value in found.values())
    with pytest.raises(UserError, match="expected a task-conditioned model"):
        measured("similarity", *random_run)
