"""A run folder is enough to predict with; what a prediction can say."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import taskmix as library
from taskmix.errors import UserError

Taskmix = Callable[..., Any]
SMALL = {"encoder": "small", "layers": 1, "width": 16, "attention_heads": 2, "vocabulary": 100}
WORDS = ("good", "bad")


def reviews(rows: int) -> str:
    lines = [f"a {WORDS[row % 2]} one {row},{WORDS[row % 2]},r{row}" for row in range(rows)]
    return "\n".join(["text,y,key", *lines]) + "\n"


def questions(rows: int) -> str:
    asked = [
        {"id": f"q{row}", "q": "who?", "c": f"it was {WORDS[row % 2]} then", "a": WORDS[row % 2]}
        for row in range(rows)
    ]
    return "".join(json.dumps(each) + "\n" for each in asked)


def files(folder: Path) -> list[dict[str, Any]]:
    """Two tasks of one's own."""
    folder.mkdir()
    for split, rows in (("train", 16), ("dev", 6), ("test", 4)):
        (folder / f"{split}.csv").write_text(reviews(rows))
        (folder / f"{split}.jsonl").write_text(questions(rows))
    mood = {"name": "mood", "text": "text", "label": "y", "id": "key"}
    who = {"name": "who", "kind": "span", "text": "q", "pair": "c", "label": "a"}
    for split in ("train", "dev", "test"):
        mood[split], who[split] = str(folder / f"{split}.csv"), str(folder / f"{split}.jsonl")
    return [mood, who]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and the files that it was trained on beside it."""
    place = tmp_path_factory.mktemp("trained")
    config = {
        "tasks": files(place / "files"),
        "model": SMALL | {"max_length": 16},
        "budget": {"steps": 4, "batch": 4},
        "optimizer": {"lr": 1e-3},
    }
    library.run(config, place / "run")
    return place


@pytest.fixture
def moved(trained: Path, tmp_path: Path) -> Path:
    """The run folder in another place, its training files gone."""
    shutil.copytree(trained, tmp_path / "trained")
    run = tmp_path / "trained" / "run"
    text = (run / "run.yaml").read_text().replace(str(trained), str(tmp_path / "trained"))
    (run / "run.yaml").write_text(text)
    for file in (tmp_path / "trained" / "files").glob("train.*"):
        file.unlink()
    return tmp_path / "trained"


def test_training_files_are_not_needed_to_predict_or_to_evaluate(
    moved: Path, trained: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.csv"
    new.write_text("text\na good one\n")
    here, there = (library.load(place / "run") for place in (moved, trained))
    assert here.predict("mood", new) == there.predict("mood", new)
    assert here.evaluate("dev") == there.evaluate("dev")
    with pytest.raises(UserError, match=r"train.csv: no such file"):
        here.evaluate("train")


def test_no_file_at_all_is_needed_to_predict_another(moved: Path, tmp_path: Path) -> None:
    shutil.rmtree(moved / "files")
    new = tmp_path / "new.jsonl"
    new.write_text('{"q": "who?", "c": "it was good then"}\n')
    assert len(library.load(moved / "run").predict("who", new)) == 1


def test_tasks_of_the_catalogue_are_looked_for_when_they_are_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for split in ("train", "dev"):
        path = data / "glue" / "RTE" / f"{split}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        labels = ("entailment", "not_entailment")
        lines = [f"{row}\tit is {row}\tis it\t{labels[row % 2]}" for row in range(8)]
        path.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n")
    held = {"name": "glue/rte", "held_out": 0.25}
    for number, task in enumerate(("glue/rte", held)):
        run = tmp_path / f"run-{number}"
        config = {"tasks": [task], "data": str(data), "model": SMALL, "budget": {"steps": 2}}
        library.run(config, run)
    shutil.rmtree(data)
    new = tmp_path / "new.tsv"
    new.write_text("index\tsentence1\tsentence2\n0\tit is\tis it\n")
    for number in (0, 1):
        opened = library.load(tmp_path / f"run-{number}")
        assert len(opened.predict("glue/rte", new)) == 1
        with pytest.raises(UserError, match=r"glue/rte: the data folder .* is not there"):
            opened.evaluate("dev")


def test_rows_in_memory_are_predicted_like_those_of_a_file(trained: Path, tmp_path: Path) -> None:
    run = library.load(trained / "run")
    rows = [{"text": f"review {k}", "key": f"k{k}"} for k in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run.predict("mood", rows) == run.predict("mood", tmp_path / "rows.jsonl")
    assert [each.id for each in run.predictions("mood", rows)] == ["k0", "k1", "k2"]
    mode = (trained / "run" / "model" / "model.safetensors").stat().st_mode
    assert mode == (trained / "run" / "run.yaml").stat().st_mode


def test_predictions_of_a_task_that_was_not_learned_come_with_a_warning(
    taskmix: Taskmix, moved: Path
) -> None:
    path = moved / "run" / "scores.json"
    scores = json.loads(path.read_text())
    scores["tasks"]["mood"] |= {"score": 0.5, "baseline": 0.5}
    path.write_text(json.dumps(scores))
    said = taskmix("predict", moved / "run", "--task", "mood", "dev")
    assert said.code == 0
    assert "mood: the model scored 50.0, not above the baseline of a constant" in said.err


def test_a_prediction_has_an_id_and_probabilities(
    taskmix: Taskmix, trained: Path, tmp_path: Path
) -> None:
    def said(*words: object) -> list[Any]:
        answer = taskmix("predict", trained / "run", *words)
        assert answer.code == 0, answer.err
        return [json.loads(line) for line in answer.out.splitlines()]

    plain = said("--task", "mood", "dev")
    assert set(plain) <= set(WORDS)
    full = said("--task", "mood", "dev", "--ids", "--probabilities")
    assert [each["answer"] for each in full] == plain
    assert [each["id"] for each in full] == [f"r{row}" for row in range(6)]
    for each in full:
        chances = each["probabilities"]
        assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
        assert max(chances, key=chances.get) == each["answer"]
    spans = said("--task", "who", "dev", "--probabilities")
    assert all(0 < each["probabilities"] <= 1 for each in spans)
    [mapping] = said("--task", "who", "dev", "--format", "mrqa")
    assert mapping == {f"q{row}": each["answer"] for row, each in enumerate(spans)}


def test_standard_input_and_a_format_that_no_name_says(
    taskmix: Taskmix, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "text\na good one\na bad one\n"
    odd = tmp_path / "emerging.test"
    odd.write_text(text)
    asked = ("predict", trained / "run", "--task", "mood")
    from_file = taskmix(*asked, odd, "--input-format", "csv")
    assert len(from_file.out.splitlines()) == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert taskmix(*asked, "-", "--input-format", "csv").out == from_file.out
    monkeypatch.setattr("sys.stdin", None)
    closed = taskmix(*asked, "-", "--input-format", "csv")
    assert closed.code == 2
    assert "standard input: expected rows to predict, found it closed" in closed.err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"title\na good one\n")))
    wrong = taskmix(*asked, "-", "--input-format", "csv")
    assert wrong.err.startswith("taskmix: task mood: standard input: no column 'text'")
    refused = taskmix(*asked, odd)
    assert (refused.code, refused.out) == (2, "")
    assert "its name does not say its format; give --input-format" in refused.err
    assert "unknown format 'cvs'" in taskmix(*asked, odd, "--input-format", "cvs").err


def test_a_kind_without_probabilities_says_so(taskmix: Taskmix, tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("text,y\n" + "".join(f"number {row},{row}\n" for row in range(8)))
    task = {"name": "n", "kind": "regress", "train": str(path), "dev": str(path)}
    library.run(
        {"tasks": [task | {"text": "text", "label": "y"}], "model": SMALL, "budget": {"steps": 2}},
        tmp_path / "run",
    )
    said = taskmix("predict", tmp_path / "run", "--task", "n", "dev", "--probabilities")
    assert said.code == 2
    assert "--probabilities: a task such as n has none" in said.err


def test_one_task_is_evaluated_alone(taskmix: Taskmix, trained: Path) -> None:
    said = taskmix("evaluate", trained / "run", "--task", "mood")
    assert said.code == 0
    assert "mood" in said.out
    assert "who" not in said.out
    assert "did you mean 'mood'" in taskmix("evaluate", trained / "run", "--task", "mod").err


def test_what_has_labels_is_scored_and_the_rest_is_named(
    moved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    test = moved / "files" / "test.csv"
    test.write_text("text\na good one\n")
    opened = library.load(moved / "run")
    assert list(opened.evaluate("test")) == ["who"]
    assert "not scored, for there are no labels: mood" in caplog.text
    with pytest.raises(UserError, match=r"no row has a label to score against \(mood\)"):
        opened.evaluate("test", "mood")
    test.write_text("text,y\na good one,good\na bad one,\nanother,bad\n")
    scores = library.load(moved / "run").evaluate("test", "mood")
    assert scores["mood"].examples == 2
    assert "scored on the 2 of 3 rows that have a label" in caplog.text


def test_rows_of_ones_own_files_are_held_out(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(reviews(20))
    (tmp_path / "dev.csv").write_text(reviews(6))
    own = {"name": "mood", "train": str(tmp_path / "train.csv"), "text": "text", "label": "y"}
    config: dict[str, Any] = {"model": SMALL, "budget": {"steps": 2, "batch": 4}}
    done = library.run(config | {"tasks": [own | {"held_out": 0.2}]}, tmp_path / "held")
    assert done.tasks["mood"].examples == 4
    both = own | {"held_out": 0.2, "rows": 8, "dev": str(tmp_path / "dev.csv")}
    library.run(config | {"tasks": [both]}, tmp_path / "both")
    assert library.load(tmp_path / "both").evaluate("test")["mood"].examples == 6
    for wrong, words in (
        (own, "mood: expected a dev file, or `held_out: 0.1`"),
        (both | {"test": str(tmp_path / "dev.csv")}, "held_out makes dev the test split"),
        (own | {"held_out": 1}, "held_out: input should be less than 1, found 1"),
        (own | {"held_out": 0.2, "row": 2}, "unknown key 'row'; did you mean 'rows'"),
        (own | {"name": ""}, "expected a name of letters, found ''"),
        (own | {"name": None}, "expected a name of letters, found None"),
        (own | {"train": None}, "mood: train: expected a file or a data set, found None"),
    ):
        with pytest.raises(UserError, match=words):
            library.run(config | {"tasks": [wrong]}, tmp_path / "wrong")
