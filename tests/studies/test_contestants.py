"""Contestants of a comparison: any decider, other settings, each task alone, one that diverges."""

import json
from pathlib import Path
from typing import Any

import pytest

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Step, read
from taskmix.studies.compare import compare
from taskmix.studies.contestants import contestant_config
from taskmix.training.folder import config_of, finished

RUN: dict[str, Any] = {
    "name": "pair",
    "tasks": ["digits/larger", "digits/left"],
    "budget": {"steps": 6, "batch": 4},
    "evaluate": {"every": 2, "examples": 20},
}
WILD = {"as": "wild", "optimizer": {"lr": 1e30}, "policy": "random"}


def test_a_contestant_may_differ_in_any_setting_of_the_run_file() -> None:
    config = RunConfig(**RUN | {"optimizer": {"lr": 0.1, "weight_decay": 0.5}})
    slow = contestant_config(config, {"as": "slow", "optimizer": {"lr": 0.01}, "policy": "exp3s"})
    assert (slow.optimizer.lr, slow.optimizer.weight_decay) == (0.01, 0.5)
    assert slow.policy == {"name": "exp3s", "as": "slow"}
    conditioned = contestant_config(config, {"as": "ca", "model": {"conditional": True}})
    assert conditioned.model.conditional is not None
    assert conditioned.decider == config.decider | {"as": "ca"}
    chosen = contestant_config(config, {"as": "mt", "selection": {"name": "mt_uncertainty"}})
    assert (chosen.policy, chosen.selection) == (None, {"name": "mt_uncertainty", "as": "mt"})


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"optimizer": {"lr": 1}}, "expected the key name in a decider, or as in a contestant"),
        ({"as": "x", "seed": 3}, "compare: x: expected the run file's seed, found another"),
        ({"as": "x", "tasks": ["a"]}, "compare: x: expected the run file's tasks"),
        ({"as": "x", "budget": {"steps": 3}}, "compare: x: expected the run file's budget"),
        ({"as": "x", "optimiser": {"lr": 1}}, "compare: x: .*optimiser.* did you mean 'optimizer'"),
        ({"as": "x", "optimizer": {"lr": -1}}, "compare: x: optimizer.lr"),
        ({"as": "a b"}, "as: expected a name"),
        ({"as": "x", "policy": "random", "selection": "mt_uncertainty"}, "x: expected one decider"),
        ({"as": "alone", "policy": "exp3s"}, "as: expected another name than alone"),
    ],
)
def test_a_contestant_that_is_none_is_one_sentence(
    spec: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        compare(RUN, ["random", spec], [1], tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_each_task_alone_has_an_equal_part_of_the_budget(tmp_path: Path) -> None:
    comparison = compare(RUN, ["alone", "random"], [1, 2], tmp_path)
    parts = sorted((tmp_path / "alone" / "seed-2").iterdir())
    assert [config_of(part).task_names for part in parts] == [["digits/larger"], ["digits/left"]]
    assert {config_of(part).budget.steps for part in parts} == {3}
    alone = {task: s for part in parts for task, s in finished(part).tasks.items()}
    merged = comparison.runs["alone"][1]
    assert merged.tasks == alone
    assert merged.score == pytest.approx(sum(s.score for s in alone.values()) / 2)
    assert merged.backward == comparison.runs["random"][1].backward == 24
    # The differences to it are what the tasks gain or lose by sharing a model.
    transfer = comparison.differences("digits/left")["random"]
    assert transfer.mean == pytest.approx(
        sum(
            random - single
            for random, single in zip(
                comparison.score("random", "digits/left"),
                comparison.score("alone", "digits/left"),
                strict=True,
            )
        )
        / 2
    )


def test_a_contestant_that_diverges_is_reported_and_the_others_finish(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    comparison = compare(RUN, ["random", WILD, "task_size"], [1, 2], tmp_path)
    assert list(comparison.runs) == ["random", "task_size"]
    assert comparison.diverged == {"wild": [1, 2]}
    assert "wild, seed 1 diverged: " in caplog.text
    assert "wild diverged with seeds 1, 2." in comparison.verdict().sentence
    assert comparison.tables()[0].notes[-1] == "wild diverged with seeds 1, 2."
    assert comparison.to_json()["diverged"] == {"wild": [1, 2]}
    caplog.clear()
    again = compare(RUN, ["random", WILD], [1, 2], tmp_path)  # is not trained again
    assert again.diverged == comparison.diverged
    assert not caplog.text
    with pytest.raises(UserError, match="compare: expected a run that does not diverge, found 1"):
        compare(RUN, [WILD], [1], tmp_path / "other")


def test_a_contestant_that_diverged_with_one_seed_is_never_the_best(tmp_path: Path) -> None:
    comparison = compare(RUN, ["random", "task_size"], [1, 2], tmp_path)
    (tmp_path / "task_size" / "seed-2" / "scores.json").unlink()
    (tmp_path / "task_size" / "seed-2" / "diverged.txt").write_text("its loss is nan")
    comparison = compare(RUN, ["random", "task_size"], [1, 2], tmp_path)
    assert comparison.seeds == {"random": [1, 2], "task_size": [1]}
    assert comparison.best() == "random"
    assert "task_size diverged with seed 2." in comparison.verdict().sentence
    assert "diverged" in [row[0] for row in comparison.scores_table().rows]


def test_a_study_grows_and_shows_all_of_it(tmp_path: Path) -> None:
    first = compare(RUN, ["random", "alone"], [1], tmp_path)
    grown = compare(RUN, ["task_size"], [1, 2], tmp_path)
    assert grown.seeds == {"task_size": [1, 2], "random": [1], "alone": [1]}
    assert grown.runs["random"] == first.runs["random"]
    assert grown.runs["alone"] == first.runs["alone"]
    assert list(grown.differences()) == ["alone", "random"]
    more = compare(RUN, ["random"], [2], tmp_path, baseline="task_size")
    assert more.seeds["random"] == [2, 1]
    assert list(more.differences()) == ["random", "alone"]


def test_finished_runs_keep_no_optimiser_unless_asked(tmp_path: Path) -> None:
    compare(RUN, ["random"], [1], tmp_path / "small")
    assert not list((tmp_path / "small").rglob("checkpoints"))
    assert list((tmp_path / "small" / "random" / "seed-1" / "model").iterdir())
    compare(RUN, ["random"], [1], tmp_path / "large", keep_checkpoints=True)
    assert list((tmp_path / "large").rglob("checkpoints"))


def test_the_comparison_can_be_read_by_other_programs(tmp_path: Path) -> None:
    comparison = compare(RUN, ["random", "task_size", "exp3s"], [1, 2], tmp_path)
    values = json.loads(json.dumps(comparison.to_json()))
    assert values["baseline"] == "random"
    assert values["contestants"]["exp3s"]["seeds"] == [1, 2]
    assert values["contestants"]["exp3s"]["outcomes"] == comparison.outcome("exp3s")
    assert min(values["contestants"]["exp3s"]["seconds"]) > 0
    assert values["differences"]["mean"]["exp3s"]["seeds"] == 2
    header, *rows = comparison.runs_table().csv().splitlines()
    assert header == "contestant,seed,task,score,loss"
    assert len(rows) == 3 * 2 * 2
    [wins] = comparison.wins_tables()
    beaten = {row[0]: row[1:] for row in wins.rows}
    random, other = comparison.outcome("random"), comparison.outcome("task_size")
    count = sum(a > b for a, b in zip(random, other, strict=True))
    assert beaten["random"][1].text == f"{count} of 2"
    assert beaten["random"][0] is None
    assert "| digits/left |" in comparison.scores_table().markdown()
    assert "time" in [row[0] for row in comparison.scores_table().rows]


def autosem_study(folder: Path, auxiliary: str = "digits/left") -> Path:
    """Write the result of a study in which two batches of the primary to one were best."""
    cost = {"steps": 1, "forward": 1, "backward": 1}
    ratio = {"digits/larger": 2, auxiliary: 1}
    trial = {"number": 0, "ratio": ratio, "value": 0.5, "pruned": False, "curve": {}, "spent": cost}
    result = {
        "primary": "digits/larger",
        "auxiliaries": [auxiliary],
        "loss": False,
        "looks": [],
        "final": [],
        "spent": {"selection": cost},
        "primary_range": [1, 3],
        "auxiliary_range": [0, 1],
        "utilities": [],
        "trials": [trial],
    }
    folder.mkdir(parents=True)
    (folder / "autosem.json").write_text(json.dumps(result))
    return folder


def test_the_ratio_of_an_autosem_study_is_a_contestant_by_its_folder(tmp_path: Path) -> None:
    folder = str(autosem_study(tmp_path / "studies" / "autosem-larger"))
    tasks = {"tasks": ["digits/left", "digits/larger", "digits/right"]}
    ratio = {"digits/left": 1, "digits/larger": 2, "digits/right": 0}
    config = RunConfig(**RUN | tasks)
    found = contestant_config(config, folder)
    assert found.policy == {"name": "cycle", "ratio": ratio, "as": "autosem-larger"}
    renamed = contestant_config(config, {"as": "found", "policy": folder})
    assert renamed.policy == {"name": "cycle", "ratio": ratio, "as": "found"}
    comparison = compare(RUN | tasks, ["random", folder], [1], tmp_path / "study")
    journal = read(comparison.folders["autosem-larger"][0] / "journal.jsonl")
    drawn = [record.task for record in journal if isinstance(record, Step)]
    assert drawn == ["digits/left", "digits/larger", "digits/larger"] * 2


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_a_result_is_one_sentence(exists: bool, tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    if exists:
        folder.mkdir()
    found = "no autosem.json in it" if exists else "no folder of that name"
    expected = f"begun: expected the folder of a finished AutoSeM study, found {found}$"
    with pytest.raises(UserError, match=expected):
        compare(RUN, ["random", str(folder)], [1], tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_ratio_of_other_tasks_is_one_sentence(tmp_path: Path) -> None:
    folder = autosem_study(tmp_path / "other", auxiliary="glue/rte")
    expected = (
        "a ratio of the run file's tasks, digits/larger, digits/left, found one with glue/rte$"
    )
    with pytest.raises(UserError, match=expected):
        contestant_config(RunConfig(**RUN), str(folder))
