"""A comparison: who is run with which seed, where, and what the table says of it."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from taskmix.config import Objective, RunConfig, build_decider, dump, label
from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.run_info import RunInfo
from taskmix.studies.compare import compare
from taskmix.studies.comparison import Comparison
from taskmix.studies.contestants import MAX_NAME
from taskmix.studies.looks import read_looks
from taskmix.training.folder import Finished, Scores


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

    monkeypatch.setattr("taskmix.training.run.run", run)


RUN = {"tasks": ["digits/left", "digits/right"]}


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
    assert list(comparison.runs) == ["random", "temperature 2"]
    assert [len(folders) for folders in comparison.folders.values()] == [2, 2]


def test_the_runs_can_have_equal_compute(
    called: list[tuple[RunConfig, Path]], tmp_path: Path
) -> None:
    compare(RUN, ["random"], [1], tmp_path, equal="compute")
    assert called[0][0].budget.count == "compute"
    with pytest.raises(UserError, match=r"compare, equal: budget.count: .*found 'computer'"):
        compare(RUN, ["random"], [1], tmp_path, equal="computer")  # type: ignore[arg-type]


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
    shares = [dict(zip(RUN["tasks"], (p, 1 - p), strict=True)) for p in (1 / 3, 1 / 3 + 1e-9)]
    rivals = [{"name": "fixed", "probabilities": each} for each in shares]
    assert all(len(label(rival)) > MAX_NAME for rival in rivals)
    compare(RUN, rivals, [1], tmp_path)
    names = [folder.parent.name for _, folder in called]
    assert len(set(names)) == 2
    assert all(len(name) < 100 for name in names)
    assert all("/" not in name for name in names)


def test_a_label_names_what_was_asked_for() -> None:
    assert label({"name": "random"}) == "random"
    assert label({"name": "exp3s", "eta": 0.1, "epsilon": 0}) == "exp3s eta 0.1, epsilon 0"


def test_a_name_of_ones_own_is_that_of_the_table_the_folder_and_the_run(
    called: list[tuple[RunConfig, Path]], tmp_path: Path
) -> None:
    warm = {"name": "temperature", "temperature": 2, "as": "warm"}
    comparison = compare(RUN, ["random", warm, {"name": "random", "as": "again"}], [1], tmp_path)
    assert list(comparison.runs) == ["random", "warm", "again"]
    assert [folder.relative_to(tmp_path).as_posix() for _, folder in called] == [
        "random/seed-1",
        "warm/seed-1",
        "again/seed-1",
    ]
    assert called[1][0].policy == warm


def test_a_name_of_ones_own_is_no_option_of_any_decider() -> None:
    info = RunInfo({"a": 10, "b": 10}, steps=10, batch=2)
    for decider in (
        {"policy": {"name": "temperature", "temperature": 2, "as": "x"}},
        {"selection": {"name": "mt_uncertainty", "as": "x"}},
        {"weighting": {"name": "diw", "target": "a", "as": "x"}},
    ):
        assert build_decider(RunConfig(tasks=["a", "b"], **decider), info) is not None


@pytest.mark.parametrize("said", ["", "a b", "../up", "-x", 3, None, "warm\n", "a/b"])
def test_a_name_that_is_none_is_one_sentence(said: object) -> None:
    with pytest.raises(UserError, match="policy: as: expected a name of letters"):
        RunConfig(tasks=["a"], policy={"name": "random", "as": said})


def test_two_contestants_of_one_name_are_refused_before_anything_runs(
    called: list[tuple[RunConfig, Path]], tmp_path: Path
) -> None:
    for twice in (["random", "random"], ["random", {"name": "task_size", "as": "random"}]):
        with pytest.raises(UserError, match="found random twice; give one a name of its own"):
            compare(RUN, twice, [1], tmp_path)
    with pytest.raises(UserError, match="expected at least one contestant"):
        compare(RUN, [], [1], tmp_path)
    assert not called


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("temperature", "policy temperature: temperature: expected a value, found none"),
        ({"name": "exp3s", "eta": -1}, "policy exp3s: eta"),
        ({"name": "fixed", "probabilities": {"other": 1.0}}, "policy fixed: "),
    ],
)
def test_wrong_options_of_the_last_contestant_are_found_before_the_first_runs(
    last: object, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        compare(RUN, ["random", last], [1], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_comparison_grows_by_seeds_and_contestants_under_the_settings_of_its_folder(
    called: list[tuple[RunConfig, Path]], tmp_path: Path
) -> None:
    compare(RUN, ["random"], [1], tmp_path)
    grown = compare(RUN | {"policy": "task_size", "seed": 9}, ["task_size"], [1, 2], tmp_path)
    assert [len(runs) for runs in grown.runs.values()] == [2]  # nothing was written by the first
    ran = len(called)
    write_whole(tmp_path / "random/seed-1/run.yaml", dump(RunConfig(**RUN)))  # it was begun
    with pytest.raises(
        UserError, match=r"compare\.yaml: begun with other settings: budget\.steps was"
    ):
        compare(RUN | {"budget": {"steps": 7}}, ["exp3s"], [3], tmp_path)
    assert len(called) == ran


def test_a_folder_whose_runs_did_not_begin_takes_other_settings(
    called: list[tuple[RunConfig, Path]], tmp_path: Path
) -> None:
    compare(RUN, ["random"], [1], tmp_path)  # as if its encoder had not been found
    compare(RUN | {"budget": {"steps": 7}}, ["random"], [1], tmp_path)
    assert len(called) == 2


def test_a_look_counts_the_seeds_that_the_baseline_has_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(config: RunConfig, folder: Path, **_: object) -> Finished:
        result = scored(0.5 + 0.01 * config.seed, 0.5)
        write_whole(folder / "run.yaml", dump(config))
        write_whole(folder / "scores.json", json.dumps(asdict(result)))
        return result

    monkeypatch.setattr("taskmix.training.run.run", run)
    compare(RUN, ["random"], [1, 2, 3], tmp_path)
    compare(RUN, ["task_size"], [1, 2, 3, 4, 5], tmp_path, baseline="random")
    assert read_looks(tmp_path)["task_size"] == [3]


def test_an_output_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: expected a folder to write to, Not a directory"):
        compare(RUN, ["random"], [1], tmp_path / "file")


def test_contestants_are_compared_with_the_first_or_with_the_one_that_is_named(
    tmp_path: Path,
) -> None:
    rivals = ["random", "task_size", {"name": "temperature", "temperature": 2, "as": "warm"}]
    comparison = compare(RUN, rivals, [1, 2, 3], tmp_path)
    assert comparison.baseline == "random"
    assert comparison.differences()["warm"].mean == pytest.approx(0.2)
    assert list(comparison.differences("a")) == ["task_size", "warm"]
    other = compare(RUN, rivals, [1, 2, 3], tmp_path, baseline="warm")
    assert list(other.differences()) == ["random", "task_size"]
    assert other.differences("a")["random"].mean == pytest.approx(-0.2)
    with pytest.raises(UserError, match="baseline: unknown contestant 'worm'; did you mean 'warm'"):
        compare(RUN, rivals, [1], tmp_path, baseline="worm")


def test_contestants_are_judged_by_the_objective_if_there_is_one() -> None:
    def run(score: float, objective: float) -> Finished:
        found = scored(score, score).tasks.items()
        tasks = {name: replace(each, loss=-objective) for name, each in found}
        return Finished(1, score, tasks, 1, 1, objective)

    runs = {"a": [run(0.5, -1.5), run(0.5, -1.0)], "b": [run(0.25, -1.0), run(0.25, -0.25)]}
    # Without one, the runs' own objectives need not be the same: a weighting's is its target's.
    assert Comparison(runs, {}).best() == "a"
    assert Comparison(runs, {}).differences()["b"].mean == pytest.approx(-0.25)
    judged = Comparison(runs, {}, objective=Objective(tasks=("a",), measure="loss"))
    assert judged.best() == "b"
    assert judged.differences()["b"].mean == pytest.approx(0.625)
    assert judged.differences("a")["b"].mean == pytest.approx(0.625)  # of losses, as the objective
    assert judged.unit.difference(0.625) == "+0.625"
    assert judged.unit.range(judged.outcome("a")) == "1.000 to 1.500"
