"""A comparison: who is run with which seed, where, and what the table says of it."""

from pathlib import Path

import pytest

from bursar.config import RunConfig
from bursar.studies.compare import Comparison, compare, label
from bursar.training.folder import Finished, Scores


def scored(a: float, b: float) -> Finished:
    each = {"a": Scores(a, {"accuracy": a}, 0.5, 10), "b": Scores(b, {"accuracy": b}, 0.5, 10)}
    return Finished(step=1, score=(a + b) / 2, tasks=each, forward=1, backward=1)


@pytest.fixture
def called() -> list[tuple[RunConfig, Path]]:
    return []


@pytest.fixture(autouse=True)
def _no_training(called: list[tuple[RunConfig, Path]], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(config: RunConfig, folder: Path, **_: object) -> Finished:
        called.append((config, folder))
        level = 0.5 if config.policy == {"name": "random"} else 0.7
        return scored(level + 0.01 * config.seed, level - 0.01 * config.seed)

    monkeypatch.setattr("bursar.training.run.run", run)


RUN = {"tasks": ["a", "b"]}


def test_every_policy_is_run_with_every_seed_in_a_folder_of_its_own(
    called: list[tuple[RunConfig, Path]], tmp_path: Path
) -> None:
    rivals = ["random", {"name": "temperature", "temperature": 2}]
    comparison = compare(RUN, rivals, [3, 5], tmp_path)
    assert [(config.seed, config.policy) for config, _ in called] == [
        (3, {"name": "random"}),
        (3, {"name": "temperature", "temperature": 2}),
        (5, {"name": "random"}),
        (5, {"name": "temperature", "temperature": 2}),
    ]
    assert [folder.relative_to(tmp_path).as_posix() for _, folder in called] == [
        "random/seed-3",
        "temperature-temperature=2/seed-3",
        "random/seed-5",
        "temperature-temperature=2/seed-5",
    ]
    assert list(comparison.runs) == ["random", "temperature(temperature=2)"]
    assert [len(folders) for folders in comparison.folders.values()] == [2, 2]


def test_scores_are_told_by_policy_task_and_seed(tmp_path: Path) -> None:
    comparison = compare(RUN, ["random", "task_size"], [1, 2], tmp_path)
    assert comparison.tasks == ["a", "b"]
    assert comparison.score("random", "a") == pytest.approx([0.51, 0.52])
    assert comparison.score("task_size", "b") == pytest.approx([0.69, 0.68])
    assert comparison.score("random") == pytest.approx([0.5, 0.5])
    assert comparison.best() == "task_size"


def test_the_best_has_the_highest_mean_and_not_the_luckiest_seed() -> None:
    runs = {"lucky": [scored(0.9, 0.9), scored(0.1, 0.1)], "steady": [scored(0.6, 0.6)] * 2}
    assert Comparison(runs, {}).best() == "steady"


def test_long_policies_have_different_folders_that_a_file_system_takes(
    called: list[tuple[RunConfig, Path]], tmp_path: Path
) -> None:
    shares = [{f"a task with a long name {k}": 0.1 + d for k in range(10)} for d in (0.0, 1e-9)]
    rivals = [{"name": "fixed", "probabilities": each} for each in shares]
    compare(RUN, rivals, [1], tmp_path)
    names = [folder.parent.name for _, folder in called]
    assert len(set(names)) == 2
    assert all(len(name) < 100 for name in names)
    assert all("/" not in name for name in names)


def test_a_label_names_what_was_asked_for() -> None:
    assert label({"name": "random"}) == "random"
    assert label({"name": "exp3s", "eta": 0.1, "epsilon": 0}) == "exp3s(eta=0.1, epsilon=0)"
