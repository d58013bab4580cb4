"""The command line: what each command prints, and what bad input gets."""

import json
import logging
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from taskmix.cli import app
from taskmix.cli.base import command
from taskmix.cli.terminal import (
    Bars,
    Lines,
    Study,
    evaluation_words,
    live,
    print_tables,
    showing,
)
from taskmix.config import Objective, RunConfig
from taskmix.config.schema import DEFAULT_POLICY
from taskmix.journal import Step
from taskmix.records import UnitRecord
from taskmix.tables import Column, Table
from taskmix.training.folder import Scores
from taskmix.training.stopping import listening

SMALL = {
    "encoder": "small",
    "layers": 1,
    "width": 16,
    "attention_heads": 2,
    "vocabulary": 100,
    "max_length": 16,
}


Said = Any
Taskmix = Callable[..., Said]


def table(rows: int, words: tuple[str, str]) -> str:
    lines = [f"a {words[row % 2]} one {row},{words[row % 2]}" for row in range(rows)]
    return "\n".join(["sentence,y", *lines]) + "\n"


def write_project(folder: Path, **changes: Any) -> Path:
    """A run file with two tasks of one's own beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in (("mood", ("good", "bad")), ("size", ("large", "small"))):
        (folder / f"{name}.csv").write_text(table(16, words))
        (folder / f"{name}-dev.csv").write_text(table(6, words))
    own = [
        {
            "name": name,
            "train": f"{name}.csv",
            "dev": f"{name}-dev.csv",
            "text": "sentence",
            "label": "y",
        }
        for name in ("mood", "size")
    ]
    values = {
        "name": "small",
        "tasks": own,
        "model": SMALL,
        "budget": {"steps": 6, "batch": 4},
        "optimizer": {"lr": 1e-3},
        "evaluate": {"every": 3},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(values | changes))
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project")


def test_a_run_prints_its_progress_its_scores_and_where_it_is(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    said = taskmix("run", project, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    lines = said.err.splitlines()
    assert not any(line.startswith("small:") for line in said.out.splitlines())
    assert any(line.startswith("small: step 3/6  loss") and "mood" in line for line in lines)
    assert any(line.startswith("small: step 6/6  dev ") for line in lines)
    assert "accuracy" in said.out
    assert f"Run folder: {tmp_path / 'run'}" in said.out
    assert f"Report: {tmp_path / 'run' / 'report.html'}" in said.out
    names = {path.name for path in (tmp_path / "run").iterdir()} - {".lock"}
    assert names == {
        "run.yaml",
        "journal.jsonl",
        "checkpoints",
        "model",
        "scores.json",
        "report.html",
    }
    assert not list((tmp_path / "run").rglob(".*.making"))


def test_quiet_prints_the_score_and_nothing_else(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    said = taskmix("run", project, "--out", tmp_path / "run", "-q")
    score = json.loads((tmp_path / "run/scores.json").read_text())["score"]
    assert said == (0, f"{100 * score:.2f}\n", "")
    assert taskmix("resume", tmp_path / "run", "--quiet") == said


def test_a_run_goes_to_the_folder_of_its_name_below_the_working_directory(
    taskmix: Taskmix, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = ("--set", "name=other", "--set", "policy=task_size", "--set", "budget.steps=2")
    assert taskmix("run", "project/run.yaml", *changes, "-q").code == 0
    kept = yaml.safe_load((tmp_path / "runs/other/run.yaml").read_text())
    assert kept["policy"] == {"name": "task_size"}
    assert kept["budget"]["steps"] == 2
    assert kept["tasks"][0]["train"] == str(project.parent / "mood.csv")


def test_the_run_file_of_a_folder_gives_the_same_scores_again(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    assert taskmix("run", project, "--out", tmp_path / "one", "-q").code == 0
    assert taskmix("run", tmp_path / "one/run.yaml", "--out", tmp_path / "two", "-q").code == 0
    for name in ("scores.json", "run.yaml", "model/model.safetensors", "model/heads.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_model_is_scored_and_predicts(taskmix: Taskmix, project: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    taskmix("run", project, "--out", run, "-q")
    scores = json.loads((run / "scores.json").read_text())

    assert taskmix("evaluate", run, "-q").out == f"{100 * scores['score']:.2f}\n"
    said = taskmix("evaluate", run, "--split", "train")
    assert said.code == 0
    assert "mood" in said.out
    assert "mean" in said.out

    new = tmp_path / "new.csv"
    new.write_text("sentence\na good one\na bad one\nsomething else\n")
    said = taskmix("predict", run, "--task", "mood", new)
    answers = [json.loads(line) for line in said.out.splitlines()]
    assert said.code == 0
    assert len(answers) == 3
    assert set(answers) <= {"good", "bad"}

    dev = taskmix("predict", run, "--task", "mood", "dev").out.splitlines()
    expected = ["good", "bad"] * 3
    hits = sum(json.loads(line) == label for line, label in zip(dev, expected, strict=True))
    assert hits / 6 == pytest.approx(scores["tasks"]["mood"]["score"])

    for words, sentence in (
        (("predict", run, "--task", "moot", new), "unknown task 'moot'; did you mean 'mood'?"),
        (("predict", run, "--task", "mood", tmp_path / "none.csv"), "found neither"),
        (("evaluate", run, "--split", "exam"), "unknown split 'exam'"),
    ):
        refused(taskmix(*words), sentence)


def test_numbers_below_zero_are_labels_like_others(taskmix: Taskmix, tmp_path: Path) -> None:
    project = write_project(tmp_path / "project", tasks=[task(kind="regress")])
    for name in ("mood.csv", "mood-dev.csv"):
        rows = "".join(f"a text {row},{-1 - row}\n" for row in range(8))
        (project.parent / name).write_text("sentence,y\n" + rows)
    score = taskmix("run", project, "--out", tmp_path / "run", "-q")
    assert score.code == 0
    assert taskmix("evaluate", tmp_path / "run", "-q") == score


def test_a_run_that_is_not_finished_is_not_scored(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    refused(taskmix("evaluate", tmp_path / "none"), "none")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/run.yaml").write_text(project.read_text())
    refused(taskmix("evaluate", tmp_path / "begun"), "expected a finished run", "taskmix resume")


def test_tasks_lists_what_is_known_and_found(taskmix: Taskmix, tmp_path: Path) -> None:
    said = taskmix("tasks")
    assert said.code == 0
    for word in ("digits/larger", "glue/rte", "classify", "regress", "accuracy"):
        assert word in said.out


def test_a_comparison_runs_each_policy_once(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    words = ("compare", project, "--out", tmp_path / "study", "--seeds", "1,2")
    policies = ("--policies", "random, {name: temperature, temperature: 2}")
    said = taskmix(*words, *policies)
    assert said.code == 0, said.err
    assert "run 4 of 4: temperature 2, seed 2: step 6/6" in said.err
    assert f"Report: {tmp_path / 'study' / 'report.html'}" in said.out
    files = sorted((tmp_path / "study").rglob("scores.json"))
    assert len(files) == 4
    before = [file.stat().st_mtime_ns for file in files]

    again = taskmix(*words, *policies, "-q")
    assert again.code == 0
    assert "seed 2" not in again.out
    assert (again.out, again.err) == (said.out, "")
    assert [file.stat().st_mtime_ns for file in files] == before

    other = taskmix(*words, *policies, "--set", "budget.steps=7")
    refused(other, "compare.yaml: begun with other settings: budget.steps was 6, now 7")


def test_a_comparison_at_equal_compute_tells_differences_to_its_baseline(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    words = ("compare", project, "--out", tmp_path / "study", "--equal", "compute")
    policies = ("--policies", "{name: exp3s, as: learned}, random", "--baseline", "random")
    said = taskmix(*words, *policies, "--seeds", "1-3")
    assert said.code == 0, said.err
    assert "learned, seed 2: step 4 (100% of the budget)" in said.err  # 4 x 3 passes for 6 x 2
    for word in ("examples forward", "above random", "p is of a paired t-test."):
        assert word in said.out
    assert (tmp_path / "study" / "learned" / "seed-1" / "scores.json").exists()
    page = (tmp_path / "study" / "report.html").read_text()
    assert "Differences to random" in page

    alone = taskmix(*words[:2], "--out", tmp_path / "alone", "-q", "--policies", "random,task_size")
    assert "no interval and no test" in alone.out
    again = taskmix("report", tmp_path / "study", "--baseline", "learned")
    assert again.code == 0, again.err
    assert "Differences to learned" in (tmp_path / "study" / "report.html").read_text()


def test_a_comparison_is_printed_for_other_programs(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    slow = "{as: slow, optimizer: {lr: 1.0e-6}}"
    words = ("compare", project, "--out", tmp_path / "study", "--seeds", "1,2")
    words += ("--policies", f"random, {slow}, alone", "--baseline", "alone", "--quiet")
    said = taskmix(*words, "--format", "json")
    assert said.code == 0, said.err
    values = json.loads(said.out)
    assert list(values["contestants"]) == ["random", "slow", "alone"]
    assert values["verdict"]["sentence"]
    rows = taskmix(*words, "--format", "csv").out.splitlines()
    assert len(rows) == 1 + 3 * 2 * 2
    text = taskmix(*words, "--format", "markdown").out
    assert "| task | random | slow | alone |" in text
    assert values["verdict"]["sentence"] in text
    assert taskmix("report", tmp_path / "study").code == 0
    assert not list((tmp_path / "study").rglob("checkpoints"))


def test_page_terminal_and_json_have_the_same_verdict_and_contestants(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    words = ("compare", project, "--out", tmp_path / "study", "--seeds", "1-3", "-q")
    words += ("--policies", "task_size, random, alone, exp3s")
    page = tmp_path / "study" / "report.html"
    for baseline in ("task_size", "alone"):
        said = taskmix(*words, "--baseline", baseline)
        assert said.code == 0, said.err
        values = json.loads(taskmix(*words, "--baseline", baseline, "--format", "json").out)
        sentence = values["verdict"]["sentence"]
        assert sentence in said.out
        text = unescape(page.read_text())
        assert f'<p class="verdict">{sentence}</p>' in text
        heads = [
            text.index(f"<th>{name}</th>") for name in values["contestants"] if name != baseline
        ]
        assert heads == sorted(heads)  # the page has the baseline first, then the same order
        taskmix("report", tmp_path / "study", "--baseline", baseline)
        assert unescape(page.read_text()) == text


def test_a_plan_says_what_its_budget_counts(taskmix: Taskmix, project: Path) -> None:
    said = taskmix("plan", project, "--set", "budget.count=compute").out
    assert "Budget: as many examples passed forward and backward as in 6 steps, batches" in said
    assert (
        "as many examples as in 6 steps"
        in taskmix("plan", project, "--set", "budget.count=examples").out
    )


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (("--policies", "random,randm"), ["compare: ", "unknown policy 'randm'", "'random'"]),
        (("--policies", "{eta: 1}"), ["compare: expected the key name", "found eta"]),
        (("--policies", "3"), ["compare: "]),
        (("--policies", ""), ["--policies", "expected at least one value"]),
        (("--policies", "[random"), ["--policies", "expected YAML"]),
        (("--policies", "random,{name: task_size, as: random}"), ["found random twice"]),
        (("--policies", "{name: random, as: a b}"), ["compare: ", "as: expected a name"]),
        (("--policies", "random", "--baseline", "rnd"), ["baseline", "did you mean 'random'"]),
        (("--policies", "random,random"), ["--policies", "different values", "random twice"]),
        (("--policies", "random", "--seeds", "1,x"), ["--seeds", "found 'x'"]),
        (("--policies", "random", "--seeds", "-1"), ["--seeds", "found -1"]),
        (("--policies", "random", "--seeds", "2,2"), ["--seeds", "2 twice"]),
    ],
    ids=str,
)
def test_a_comparison_of_nonsense_is_refused(
    words: tuple[str, ...], sentences: list[str], taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    refused(taskmix("compare", project, "--out", tmp_path / "study", *words), *sentences)
    assert not (tmp_path / "study").exists()


def test_a_full_disk_during_an_export_is_one_sentence(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    assert taskmix("run", project, "--out", tmp_path / "run", "-q").code == 0
    words = ("export", tmp_path / "run", tmp_path / "model", "--task", "mood")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (100, 6_000):  # too small for the weights, then for the tokenizer
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            said = taskmix(*words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert said.code == 1, said.err
        assert "the model could not be written: " in said.err
        assert said.err.count("\n") == 1
        assert not list(tmp_path.glob("*model*"))
    assert taskmix(*words).code == 0


def test_the_demo_compares_three_policies_twice_in_a_row(taskmix: Taskmix, tmp_path: Path) -> None:
    for _ in range(2):
        said = taskmix("demo", "--out", tmp_path / "demo", "--steps", "12", "--quiet")
        assert said.code == 0, said.err
        for word in ("random", "task_size", DEFAULT_POLICY, "report.html"):
            assert word in said.out
    assert len(list((tmp_path / "demo").rglob("scores.json"))) == 9
    refused(taskmix("demo", "--out", tmp_path / "none", "--steps", "0"), "budget.steps", "found 0")
    assert not (tmp_path / "none").exists()


def test_help_teaches_by_example(taskmix: Taskmix) -> None:
    said = taskmix("--help").out
    assert "taskmix demo" in said
    headings = ["To start:", "One run:", "Studies of several runs:", "Pages:", "Trained models:"]
    places = [said.index(f"\n{heading}\n") for heading in headings]
    assert places == sorted(places)
    assert said.index("\n  ui ") > said.index("Pages:")
    for name in ("run", "resume", "evaluate", "predict", "tasks", "compare"):
        said = taskmix(name, "--help")
        assert said.code == 0
        assert f"\n  taskmix {name}" in said.out


def test_a_new_command_is_one_function(taskmix: Taskmix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])

    @command("taskmix greet --name you")
    def greet(name: str = "world") -> None:
        """Print a greeting."""
        print_tables([Table([Column("greeting")], [[f"hello {name}"]])])

    assert "hello you" in taskmix("greet", "--name", "you").out
    said = taskmix("greet", "--help").out
    assert "Print a greeting.\n\n  taskmix greet --name you\n" in said


def refused(said: Said, *words: str) -> None:
    """One sentence on the error stream, below the progress; exit code 2, no traceback."""
    assert said.code == 2, said
    *progress, line = said.err.splitlines()
    assert all(": reading " in before for before in progress)
    assert line.startswith("taskmix: ")
    for word in words:
        assert word in line, line


def task(**changes: Any) -> dict[str, Any]:
    own = {"name": "mood", "train": "mood.csv", "dev": "mood-dev.csv"}
    return own | {"text": "sentence", "label": "y"} | changes


BAD: dict[str, tuple[dict[str, Any], dict[str, bytes], list[str]]] = {
    "unknown key": ({"polcy": "random"}, {}, ["run.yaml", "'polcy'", "'policy'"]),
    "unknown policy": ({"policy": "exp4"}, {}, ["unknown policy 'exp4'", "exp3s", "thompson"]),
    "unknown option": ({"policy": {"name": "exp3s", "nu": 1}}, {}, ["'nu'", "eta", "epsilon"]),
    "misspelled option": (
        {"policy": {"name": "temperature", "temprature": 2}},
        {},
        ["policy temperature: unknown option 'temprature'; did you mean 'temperature'?"],
    ),
    "misspelled encoder": (
        {"model": {"encoder": "minlm"}},
        {},
        ["model.encoder: unknown encoder 'minlm'; did you mean 'minilm'?"],
    ),
    "no dev split": (
        {"tasks": [{"name": "mood", "train": "mood.csv", "text": "sentence", "label": "y"}]},
        {},
        ["mood: expected a dev file, or `held_out: 0.1` for a tenth of the rows, found none"],
    ),
    "unknown task": ({"tasks": ["glue/rtee"]}, {}, ["'glue/rtee'", "did you mean 'glue/rte'"]),
    "task without data": ({"tasks": ["glue/rte"]}, {}, ["glue/rte", "TASKMIX_DATA"]),
    "unknown key of a task": ({"tasks": [task(txt="x")]}, {}, ["mood", "'txt'", "'text'"]),
    "missing key of a task": (
        {"tasks": [{"name": "mood", "dev": "mood-dev.csv", "text": "sentence"}]},
        {},
        ["mood: train: expected a value, found none"],
    ),
    "unknown key of a part": (
        {"tasks": [{"name": "digits/left", "rows": 9, "data": "x"}]},
        {},
        ["digits/left", "unknown key 'data'", "Choices: held_out, name, rows."],
    ),
    "no rows": ({"tasks": [{"name": "digits/left", "rows": 0}]}, {}, ["digits/left", "found 0"]),
    "all held out": (
        {"tasks": [{"name": "digits/left", "held_out": 1.0}]},
        {},
        ["digits/left", "held_out", "found 1.0"],
    ),
    "wrong type in a task": ({"tasks": [task(labels=3)]}, {}, ["mood"]),
    "unknown kind": ({"tasks": [task(kind="sort")]}, {}, ["'sort'", "classify"]),
    "unknown metric": ({"tasks": [task(metrics=["bleu"])]}, {}, ["'bleu'", "accuracy"]),
    "missing file": ({"tasks": [task(train="none.csv")]}, {}, ["none.csv", "no such file"]),
    "missing column": ({"tasks": [task(text="words")]}, {}, ["mood.csv", "words", "sentence"]),
    "label not in the set": (
        {"tasks": [task()]},
        {"mood-dev.csv": b"sentence,y\na,good\nb,ugly\n"},
        ["mood-dev.csv", "row 3", "'ugly'", "good"],
    ),
    "too few columns": (
        {"tasks": [task()]},
        {"mood.csv": b"sentence,y\na,good\nb\nc,bad\n"},
        ["mood.csv", "row 3", "1", "2"],
    ),
    "empty split": ({"tasks": [task()]}, {"mood-dev.csv": b"sentence,y\n"}, ["mood-dev.csv"]),
    "empty file": ({"tasks": [task()]}, {"mood.csv": b""}, ["mood.csv"]),
    "not UTF-8": (
        {"tasks": [task()]},
        {"mood.csv": b"sentence,y\na,good\n\xff\xfe,bad\n"},
        ["mood.csv", "UTF-8"],
    ),
    "one class": (
        {"tasks": [task()]},
        {"mood.csv": b"sentence,y\na,good\nb,good\n"},
        ["mood.csv", "good", "two or more"],
    ),
    "one class of two": (
        {"tasks": [task(labels=["good", "bad"])]},
        {"mood.csv": b"sentence,y\na,good\nb,good\n"},
        ["mood.csv", "one class only", "good"],
    ),
    "no number": (
        {"tasks": [task(kind="regress")]},
        {"mood.csv": b"sentence,y\na,1.5\nb,much\n"},
        ["mood.csv", "row 3", "'much'", "number"],
    ),
    "one number": (
        {"tasks": [task(kind="regress")]},
        {"mood.csv": b"sentence,y\na,1\nb,1\n", "mood-dev.csv": b"sentence,y\na,1\nb,2\n"},
        ["mood.csv", "two or more"],
    ),
    "twice": ({"tasks": [task(), task()]}, {}, ["different names", "'mood' twice"]),
    "texts and images": ({"tasks": [task(), "digits/left"]}, {}, ["digits/left", "images"]),
    "encoder of images": (
        {"tasks": [task()], "model": {"encoder": "cnn"}},
        {},
        ["model.encoder", "'cnn'"],
    ),
    "encoder of texts": (
        {"tasks": ["digits/left"], "model": {"encoder": "small"}},
        {},
        ["model.encoder", "'small'"],
    ),
    "encoder that is nowhere": (
        {"tasks": [task()], "model": {"encoder": "./none"}},
        {},
        ["model.encoder", "./none"],
    ),
    "width": ({"model": SMALL | {"width": 17}}, {}, ["model.width", "17"]),
    "too many frozen": ({"model": SMALL | {"freeze": 3}}, {}, ["model.freeze", "3", "1"]),
    "no budget": ({"budget": {"steps": 0}}, {}, ["budget.steps", "found 0"]),
    "no batch": ({"budget": {"batch": 0}}, {}, ["budget.batch", "found 0"]),
    "no tasks": ({"tasks": []}, {}, ["tasks", "at least one"]),
    "policy's own mistake": (
        {"policy": {"name": "fixed", "probabilities": {"mood": 1}}},
        {},
        ["policy fixed", "mood", "size"],
    ),
    "device": ({"device": "abacus"}, {}, ["device", "'abacus'"]),
    "device that is not here": ({"device": "cuda:77"}, {}, ["device", "'cuda:77'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_nothing_half_written(
    case: str, taskmix: Taskmix, tmp_path: Path
) -> None:
    changes, files, words = BAD[case]
    project = write_project(tmp_path / "project", **changes)
    for name, content in files.items():
        (project.parent / name).write_bytes(content)
    there = sorted(tmp_path.rglob("*"))
    refused(taskmix("run", project, "--out", tmp_path / "out"), *words)
    assert sorted(tmp_path.rglob("*")) == there


def test_a_run_file_that_is_no_mapping_is_refused(taskmix: Taskmix, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("- glue/rte\n")
    refused(taskmix("run", tmp_path / "run.yaml"), "run.yaml", "a mapping", "a list")
    refused(taskmix("run", tmp_path / "none.yaml"), "none.yaml: no such file")
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_a_folder_that_has_a_run_or_cannot_be_one_is_refused(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    taskmix("run", project, "--out", tmp_path / "run", "-q")
    refused(taskmix("run", project, "--out", tmp_path / "run"), "already", "taskmix resume")
    refused(taskmix("run", project, "--out", project), "expected a folder")
    refused(taskmix("resume", tmp_path), "expected a run folder")


def test_a_loss_that_is_no_number_exits_with_1(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    wild = ("--set", "optimizer.lr=1e30", "--set", "budget.steps=20")
    said = taskmix("run", project, "--out", tmp_path / "run", *wild, "-q")
    assert said.code == 1
    [line] = said.err.splitlines()
    assert line.startswith("taskmix: task ")
    assert "step" in line
    assert "no number to go on from" in line


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGUSR1, 75)]
)
def test_a_stopped_run_says_how_to_go_on(
    number: int,
    code: int,
    taskmix: Taskmix,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(self: Lines, record: UnitRecord) -> None:
        if record.step == 4:
            signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "advanced", stop)
        said = taskmix("run", project, "--out", tmp_path / "run")
    assert said.code == code
    folder = tmp_path / "run"
    assert said.err.endswith(
        "\ntaskmix: stopped after step 4 of 6, with a checkpoint; "
        f"continue it with `taskmix resume {folder}`\n"
    )
    assert (folder / "checkpoints/step-4").exists()
    assert taskmix("run", project, "--out", folder, "-q").code == 2
    assert taskmix("run", project, "--out", folder, "-q", "--resume").code == 0


def test_a_signal_is_acknowledged_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with listening() as stop:
        signal.raise_signal(signal.SIGINT)
        assert capfd.readouterr().err == "\ntaskmix: stopping after this step ...\n"
        assert stop.by == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert capfd.readouterr().err == ""


@pytest.mark.parametrize("moment", ["advanced", "evaluated"])
def test_a_study_that_is_stopped_at_the_end_of_a_run_does_not_begin_the_next(
    moment: str, taskmix: Taskmix, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Lines, at: object, *_: object) -> None:
        if getattr(at, "step", at) == 6:
            signal.raise_signal(signal.SIGINT)

    folder = tmp_path / "study"
    asked = ("compare", project, "--policies", "random,task_size", "--out", folder)
    with monkeypatch.context() as patch:
        patch.setattr(Lines, moment, stop)
        said = taskmix(*asked)
    assert said.code == 130
    assert said.err.endswith(
        "taskmix: random, seed 1: stopped after step 6 of 6, with a checkpoint; the same command "
        "goes on with the study\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == [".locks", "compare.yaml", "random"]
    assert taskmix(*asked, "-q").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_run_that_is_stopped_before_its_first_step_asks_for_another_start(
    number: int, taskmix: Taskmix, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        signal.raise_signal(number)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr("taskmix.training.run.assemble", stop)
        said = taskmix("run", project, "--out", tmp_path / "run")
    folder = tmp_path / "run"
    sentence = f"taskmix: {folder}: stopped outside of the run's steps; start it again\n"
    assert (said.code, said.err) == (75, sentence)
    assert signal.getsignal(number) == before
    assert taskmix("run", project, "--out", folder, "-q", "--resume").code == 0


def test_only_run_and_resume_have_several_ranks(
    taskmix: Taskmix, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "x", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    said = taskmix("compare", project, "--policies", "random")
    assert (said.code, said.err) == (
        2,
        "taskmix: compare: expected one process, found 2 ranks; only run and resume train with "
        "several\n",
    )


def of_steps(steps: int) -> RunConfig:
    return RunConfig(tasks=["mood"], budget={"steps": steps})


def test_a_fault_of_the_world_is_one_sentence(
    taskmix: Taskmix, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "cache")

    monkeypatch.setattr("taskmix.training.run.run", full)
    said = taskmix("run", project, "--out", tmp_path / "run", "-q")
    assert (said.code, said.out) == (1, "")
    assert said.err == "taskmix: [Errno 28] No space left on device: 'cache'\n"


def test_a_policy_of_ones_own_lies_beside_the_run_file(
    taskmix: Taskmix, project: Path, tmp_path: Path
) -> None:
    (project.parent / "a_policy_that_lies_here.py").write_text(
        "from taskmix.policies import Random\n\nclass Mine(Random):\n    pass\n"
    )
    mine = ("--set", "policy=a_policy_that_lies_here:Mine", "--set", "budget.steps=2")
    said = taskmix("run", project, "--out", tmp_path / "run", *mine, "-q")
    assert said.code == 0, said.err


def test_the_installed_command_answers_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("tasks: [digits/left]\npolicy: randm\n")
    command = [sys.executable, "-m", "taskmix", "run", str(tmp_path / "run.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"taskmix: {tmp_path / 'run.yaml'}: policy: unknown policy")
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(:", "invalid syntax"),
        ("x = unknown_name", "NameError: name 'unknown_name' is not defined"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_sentence(
    taskmix: Taskmix, project: Path, tmp_path: Path, text: str, reason: str
) -> None:
    (project.parent / "a_broken_module.py").write_text(f"{text}\n")
    broken = ("--set", "policy=a_broken_module:Mine")
    said = taskmix("run", project, "--out", tmp_path / "run", *broken)
    assert said.code == 2
    [sentence] = said.err.splitlines()
    assert f"policy: expected module:Class, found 'a_broken_module:Mine' ({reason}" in sentence
    assert not (tmp_path / "run").exists()


def test_files_of_the_working_directory_do_not_stand_for_pythons_own(tmp_path: Path) -> None:
    for name in ("queue", "sklearn", "typer"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the right module')\n")
    command = [sys.executable, "-m", "taskmix", "tasks", "--no-sizes"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "digits/left" in done.stdout


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_terminal_of_any_width_shows_bar_step_and_time_left(width: int) -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=width)
    with live(console) as progress:
        study = Study(runs=9)
        for title in ("first", "a [run] with a very long name, seed 3"):
            bars = Bars(progress, title, of_steps(20), study)
            bars.reading("mood", "train", 2048)
            progress.refresh()
            for step in range(1, 21):
                task = "mood" if step % 4 else "size"
                bars.advanced(Step(step, task, 0.5, loss=0.5, tokens=100))
                bars.spent(step / 20)
                progress.refresh()
            bars.evaluated(20, {}, 0.625, best=True)
    lines = plain(screen.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    last = [line for line in lines if "20/20" in line][-1]
    assert "run 2 of 9" in last
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in last
    assert re.search(r"0:00:00 all \d:\d\d:\d\d", last)
    assert " ".join(" ".join(lines).split()).count("dev 62.5 (best)") == 2
    if width == 160:
        assert "loss 0.500" in last
        assert any("reading mood train: 2,048 rows" in line for line in lines)


def plain(text: str) -> str:
    """What a terminal shows of control sequences, a line for each state of the bar."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "\n")


def test_a_study_knows_the_time_left_for_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([60.0, 70.0, 90.0])
    monkeypatch.setattr("taskmix.cli.terminal.time.perf_counter", lambda: next(clock))
    study = Study(runs=3)
    assert study.begin("finished before") == "run 1 of 3: finished before"
    assert study.left() == ""
    study.begin("second")
    study.spent(0.25)
    assert study.left() == ""  # the start of a run says nothing about its steps
    study.spent(0.5)
    assert (
        study.left() == "all 0:01:00"
    )  # a quarter of a run in 10 seconds; one and a half are left
    study.spent(1.0)
    study.begin("third")
    assert study.left() == "all 0:00:40"
    assert Study().begin("alone") == "alone"


def test_a_warning_is_printed_once_a_study_and_never_in_quiet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = logging.getLogger("taskmix.training.prepare")
    for quiet, printed in ((False, "taskmix: cut 3 rows\n"), (True, "")):
        with showing(quiet):
            for _ in range(5):
                log.warning("cut %d rows", 3)
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", printed)


def test_a_pipe_gets_about_ten_lines_a_run() -> None:
    screen = StringIO()
    lines = Lines(Console(file=screen, width=80), "[bold]run", of_steps(1000))
    for rows in (2048, 4096):
        lines.reading("mood", "train", rows)
    for step in range(1, 1001):
        lines.advanced(Step(step, "mood", 0.5, loss=0.25, tokens=10))
        lines.spent(step / 1000)
    lines.evaluated(1000, {}, 0.5, best=False)
    shown = screen.getvalue().splitlines()
    assert shown[0] == "[bold]run: reading mood train"
    assert len(shown) == 12
    assert shown[-1] == "[bold]run: step 1000/1000  dev 50.0"


def test_an_evaluation_is_told_by_what_the_run_is_for() -> None:
    scores = {
        "a": Scores(0.5, {}, loss=2.0, examples=1),
        "b": Scores(0.7, {}, loss=1.0, examples=1),
    }
    for asked, said in (
        (None, "dev 60.0 (best)"),
        (Objective(tasks=("b",)), "dev 70.0 (best)"),
        (Objective(tasks=("a", "b"), measure="loss"), "dev loss 1.500 (best)"),
    ):
        assert evaluation_words(asked, scores, 0.6, best=True) == said


def test_a_pipe_hears_of_a_long_step_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, clock = StringIO(), iter([0.0, 9.0, 11.0, 11.0, 20.0])
    monkeypatch.setattr("taskmix.cli.terminal.time.monotonic", lambda: next(clock))
    lines = Lines(Console(file=screen, width=80), "run", of_steps(10))
    for batch in (1, 2, 3):
        lines.working(f"round 1: batch {batch}")
    assert screen.getvalue().splitlines() == ["run: round 1: batch 2"]


def test_autosem_says_what_helps_in_what_ratio_and_at_what_price(
    taskmix: Taskmix, tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("botorch")
    file = write_project(tmp_path)
    words = ("autosem", file, "--primary", "mood", "--rounds", "4", "--batches", "1")
    words += ("--trials", "3", "--initial", "2", "--out", tmp_path / "study")
    said = taskmix(*words, "--quiet", "--seeds", "7")
    assert said.code == 0
    said = taskmix(*words, "--trials", "4", "--seeds", "7,8")
    assert said.code == 0
    assert said.err.startswith("At most 9 runs with ")
    assert "Runs that the folder has already are not trained again." in said.err
    assert "utility" in said.out
    assert "steps were spent" in said.out
    page = tmp_path / "study" / "report.html"
    written = page.read_bytes()
    assert list((tmp_path / "study" / "final").glob("*/seed-8/model"))
    page.unlink()
    assert taskmix("report", tmp_path / "study").code == 0
    assert page.read_bytes() == written


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--primary", "mod"), "primary: unknown task 'mod'; did you mean 'mood'?"),
        (("--primary", "mood", "--candidates", "mood"), "candidates: expected at least one task"),
        (("--primary", "mood", "--candidates", ""), "--candidates: expected at least one value"),
        (("--primary", "mood", "--storage", "ftp://x"), "storage: expected a URL"),
        (("--primary", "mood", "--storage", "postgresql://h:port/x"), "storage: expected a URL"),
        (("--primary", "mood", "--seeds", "1,2"), "seeds: expected others than 1"),
    ],
)
def test_autosem_refuses_bad_input_in_one_sentence(
    words: tuple[str, ...], sentence: str, taskmix: Taskmix, tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    said = taskmix("autosem", write_project(tmp_path), *words, "--out", tmp_path / "study")
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
