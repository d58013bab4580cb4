"""A folder of tables becomes a run file that runs; commands that list."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskmix.config import load
from taskmix.config.guess import run_file
from taskmix.errors import UserError
from taskmix.families import FAMILIES

Taskmix = Callable[..., Any]
ADJECTIVES = ("fine", "awful")


def csv(path: Path, header: str, rows: list[str]) -> None:
    path.write_text("\n".join([header, *rows]) + "\n")


def entry(folder: Path) -> dict[str, Any]:
    """The one task that the run file of a folder has."""
    path = folder / "guessed.yaml"
    path.write_text(run_file(folder, folder))
    [task] = load(path).tasks
    path.unlink()
    said: dict[str, Any] = task.model_dump()
    return {key: value for key, value in said.items() if key not in ("name", "train", "dev")}


def test_a_folder_becomes_a_run_file_that_trains(taskmix: Taskmix, tmp_path: Path) -> None:
    data = tmp_path / "my data"
    data.mkdir()
    rows = [f"this was {ADJECTIVES[k % 2]} number {k},{k % 2}" for k in range(40)]
    csv(data / "reviews-train.csv", "text,label", rows)
    csv(data / "reviews-dev.csv", "text,label", rows[:8])
    csv(data / "pairs.tsv", "one\ttwo\tscore", [f"a b {k}\tc d {k}\t{k / 7}" for k in range(40)])
    said = taskmix("init", data)
    assert said.code == 0, said.err
    assert "# reviews-train.csv: label has 2 values: 0 20, 1 20 of 40 rows" in said.out
    assert "# pairs.tsv: score has 40 different numbers; no dev file" in said.out
    assert "share" in said.out  # the plan
    assert f"To train: taskmix run '{data}/taskmix.yaml'" in said.out
    config = load(data / "taskmix.yaml")
    assert [task.name for task in config.tasks] == ["pairs", "reviews"]
    sets = ("budget.steps=2", "budget.batch=4", "model={encoder: small, layers: 1, width: 16}")
    options = [word for change in sets for word in ("--set", change)]
    run = taskmix("run", data / "taskmix.yaml", *options, "--out", tmp_path / "run", "-q")
    assert run.code == 0, run.err


def test_a_run_file_is_not_overwritten(taskmix: Taskmix, tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", "text,label", [f"a b {k},{k % 2}" for k in range(20)])
    (tmp_path / "taskmix.yaml").write_text("mine")
    said = taskmix("init", tmp_path)
    assert said.code == 2
    assert "taskmix.yaml: expected no such file, found one; remove it" in said.err
    assert (tmp_path / "taskmix.yaml").read_text() == "mine"
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert taskmix("init", tmp_path, "--out", other / "run.yaml").code == 0
    [task] = load(other / "run.yaml").tasks
    assert Path(str(task.model_dump()["train"])) == tmp_path / "a.csv"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {"words": ["in", "Rome", "now"], "tags": ["O", "B", "O"]},
            {"kind": "tag", "text": "words", "label": "tags"},
        ),
        (
            {"question": "Who is it?", "context": "It is Bob.", "answers": [["Bob", 6]]},
            {"kind": "span", "text": "question", "pair": "context", "label": "answers"},
        ),
        (
            {"premise": "It rained.", "choice1": "Get wet.", "choice2": "Stay dry.", "label": 0},
            {
                "kind": "choose",
                "text": "premise",
                "choices": ("choice1", "choice2"),
                "label": "label",
            },
        ),
        (
            {"prompt": "Say hello", "response": "hello to you"},
            {"kind": "generate", "prompt": "prompt", "answer": "response"},
        ),
        (
            {"text": "late, but cheap", "topics": "x", "labels": ["price", "delivery"]},
            {"kind": "multilabel", "text": "text", "label": "labels"},
        ),
        ({"body": "a story of its own"}, {"kind": "generate", "text": "body"}),
    ],
    ids=["tag", "span", "choose", "prompt", "multilabel", "text"],
)
def test_kinds_are_guessed_from_the_columns(
    record: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    others = [
        record | {key: f"{value} {k}" for key, value in record.items() if _free(key, value)}
        for k in range(8)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, others)))
    assert entry(tmp_path) == expected | {"held_out": 0.1}


def _free(key: str, value: Any) -> bool:
    return isinstance(value, str) and key != "topics"


def test_an_answer_with_few_values_is_a_class(tmp_path: Path) -> None:
    rows = [f"is it {k}?,it is {k} today,{'yes' if k % 3 else 'no'}" for k in range(30)]
    csv(tmp_path / "pairs.csv", "question,passage,answer", rows)
    guess = entry(tmp_path)
    assert guess["kind"] == "classify"
    assert (guess["text"], guess["pair"], guess["label"]) == ("question", "passage", "answer")


def test_other_columns_that_may_be_the_label_are_named(tmp_path: Path) -> None:
    rows = [f"good number {k},{k % 5},{'up' if k % 2 else 'down'}" for k in range(40)]
    csv(tmp_path / "reviews.csv", "review,stars,sentiment", rows)
    text = run_file(tmp_path, tmp_path)
    counts = "0 8, 1 8, 2 8, 3 8, 4 8 of 40 rows"
    assert f"stars has 5 values: {counts}; sentiment may be the label instead" in text
    place = "train: reviews.csv, held_out: 0.1, text: review"
    assert f"  # - {{name: reviews, kind: classify, {place}, label: sentiment}}\n" in text


def test_rows_without_a_label_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = [f"good number {k},{'abcdefg'[k % 7] if k % 10 else ''}" for k in range(70)]
    csv(tmp_path / "reviews.csv", "review,label", rows)
    text = run_file(tmp_path, tmp_path)
    counts = "b 9, c 9, d 9, e 9, f 9 … of 70 rows; rows without a label (7 of 70 rows)"
    assert f"label has 7 values: {counts} are left out" in text
    assert "label: label, missing: skip}" in text


def test_a_label_column_without_any_label_is_no_label(tmp_path: Path) -> None:
    csv(tmp_path / "texts.csv", "review,label", [f"good number {k}," for k in range(9)])
    assert entry(tmp_path)["kind"] == "generate"


def test_the_column_of_the_text_is_no_label(tmp_path: Path) -> None:
    csv(tmp_path / "few.csv", "text,label", [f"so {k % 4} good,{k % 2}" for k in range(40)])
    assert "label has 2 values: 0 20, 1 20 of 40 rows; no dev file" in run_file(tmp_path, tmp_path)


def test_an_empty_row_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{}\n{"text": "so good", "label": 1}\n')
    with pytest.raises(UserError, match="expected rows, found an empty one"):
        run_file(tmp_path, tmp_path)


def test_another_separator_is_one_sentence(tmp_path: Path) -> None:
    csv(tmp_path / "topics.csv", "headline;topic", [f"a b {k};x" for k in range(20)])
    with pytest.raises(UserError, match=r"separated by commas .* the one column 'headline;topic'"):
        run_file(tmp_path, tmp_path)


def test_tasks_that_generate_get_a_language_model(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", "text,label", [f"a b {k},{k % 2}" for k in range(20)])
    csv(tmp_path / "b.csv", "prompt,response", [f"say {k},it is {k}" for k in range(20)])
    assert "model: {encoder: small}" in run_file(tmp_path, tmp_path)


def test_splits_are_found_in_folders_and_in_names(tmp_path: Path) -> None:
    for name in ("train", "validation", "test"):
        (tmp_path / "mood").mkdir(exist_ok=True)
        csv(tmp_path / "mood" / f"{name}.csv", "text,y", [f"a b {k},{k % 2}" for k in range(20)])
    text = run_file(tmp_path, tmp_path)
    assert "name: mood, kind: classify, train: mood/train.csv, dev: mood/validation.csv" in text
    assert "test: mood/test.csv" in text


def test_a_folder_without_tables_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected tables \(.csv, .tsv, .* found none"):
        run_file(tmp_path, tmp_path)
    with pytest.raises(UserError, match="expected a folder of tables, found none"):
        run_file(tmp_path / "none", tmp_path)
    csv(tmp_path / "numbers.csv", "x,z", [f"{k},{k}" for k in range(30)])
    with pytest.raises(UserError, match="expected a column of texts, found the columns x, z"):
        run_file(tmp_path, tmp_path)


def test_every_decider_is_listed(taskmix: Taskmix) -> None:
    said = taskmix("policies")
    assert said.code == 0
    for family in FAMILIES.values():
        for cls in family.members:
            assert cls.name in said.out


RUN = "tasks: [digits/left, digits/right]\nbudget: {steps: 2, batch: 8}\nevaluate: {examples: 20}\n"


def test_a_forced_run_keeps_the_one_before(taskmix: Taskmix, tmp_path: Path) -> None:
    file, folder = tmp_path / "run.yaml", tmp_path / "runs" / "a"
    file.write_text(RUN)
    assert taskmix("run", file, "--out", folder, "--force", "-q").code == 0
    journal = (folder / "journal.jsonl").read_bytes()
    assert taskmix("run", file, "--out", folder, "-q").code == 2
    said = taskmix("run", file, "--out", folder, "--force", "--set", "seed=2")
    assert said.code == 0, said.err
    assert "a.old-1" in said.out
    assert (tmp_path / "runs" / "a.old-1" / "journal.jsonl").read_bytes() == journal
    assert taskmix("run", file, "--out", folder, "--force", "-q").code == 0
    assert (tmp_path / "runs" / "a.old-2" / "scores.json").exists()


def test_a_run_file_without_a_name_gives_its_own_to_the_folder(
    taskmix: Taskmix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "small.yaml"
    file.write_text(RUN)
    assert taskmix("run", file, "-q").code == 0
    assert taskmix("run", file, "-q", "--set", "name=named").code == 0
    assert {folder.name for folder in (tmp_path / "runs").iterdir()} == {"small", "named"}


def test_evaluate_says_that_the_run_scored_fewer_examples(taskmix: Taskmix, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(RUN)
    folder = tmp_path / "runs" / "a"
    taskmix("run", file, "--out", folder, "-q")
    said = taskmix("evaluate", folder)
    assert "the run scored at most 20 of each task" in said.out


def test_a_folder_of_runs_is_no_run_and_its_runs_are_named(
    taskmix: Taskmix, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    said = taskmix("evaluate", runs)
    assert said.err.endswith("expected the folder of a finished run, found no run.yaml\n")
    for number in range(7):
        (runs / f"run-{number}").mkdir()
        (runs / f"run-{number}" / "run.yaml").write_text(RUN)
    names = ", ".join(str(runs / f"run-{number}") for number in range(5))
    for command in ("evaluate", "resume"):
        said = taskmix(command, runs)
        assert said.code == 2
        assert said.err.endswith(f"; runs in it: {names} and 2 more\n")


def test_a_wrong_objective_of_a_comparison_is_not_blamed_on_a_policy(
    taskmix: Taskmix, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(RUN)
    words = ("--set", "objective=digits/lefft", "--out", tmp_path / "study")
    said = taskmix("compare", file, *words)
    assert said.err.startswith("taskmix: objective: unknown task 'digits/lefft'; did you mean")


def test_a_comparison_without_policies_is_with_uniform_sampling(
    taskmix: Taskmix, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    for policy, names in (("", {"random", "aimed"}), ("policy: exp3s\n", {"random", "exp3s"})):
        file.write_text(RUN + policy)
        out = tmp_path / f"study-{len(policy)}"
        said = taskmix("compare", file, "--out", out)
        assert said.code == 0, said.err
        assert {path.name for path in out.iterdir() if path.is_dir()} - {".locks"} == names


def test_tasks_without_data_say_how_to_name_the_folder(
    taskmix: Taskmix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TASKMIX_DATA", raising=False)
    assert "name their folder with --data or TASKMIX_DATA" in taskmix("tasks").out
