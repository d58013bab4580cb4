"""Files of a run folder that are not as they were written: one sentence, never a traceback."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import taskmix as library
from taskmix.errors import UserError
from taskmix.files import hash_of
from taskmix.report.page import write_run_report
from taskmix.training.change import change_tasks
from taskmix.training.folder import finished

DEEP = "[" * 5000 + "]" * 5000
GARBAGE = ["", "{", "[]", "null", "5", '"x"', '{"a": 1}', DEEP, "9" * 5000, "\u00b2"]
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    config = {
        "tasks": ["digits/left", "digits/right"],
        "budget": {"steps": 4, "batch": 8},
        "evaluate": {"every": 2, "examples": 10, "keep": "last"},
    }
    library.run(config, folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def edit(path: Path, change: Change) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_for_scores_is_named(text: str, folder: Path) -> None:
    (folder / "scores.json").write_text(text)
    for use in (finished, library.load, library.resume, write_run_report):
        with pytest.raises(UserError, match=r"scores.json: expected the scores of a run"):
            use(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(score="x"),
        lambda d: d.update(tasks=[]),
        lambda d: d["tasks"]["digits/left"].update(score=None),
        lambda d: d["tasks"]["digits/left"].pop("loss"),
    ],
)
def test_scores_of_another_form_are_named(change: Change, folder: Path) -> None:
    edit(folder / "scores.json", change)
    with pytest.raises(UserError, match=r"scores.json: expected the scores of a run, found"):
        finished(folder)


def test_scores_of_other_tasks_have_no_report(folder: Path) -> None:
    edit(folder / "scores.json", lambda d: d["tasks"].update(x=d["tasks"].pop("digits/left")))
    with pytest.raises(UserError, match="expected the tasks of its journal"):
        write_run_report(folder)


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_for_a_model_is_named(text: str, folder: Path) -> None:
    (folder / "model" / "taskmix.json").write_text(text)
    with pytest.raises(UserError, match="model"):
        library.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(format="x"),
        lambda d: d.update(format=99),
        lambda d: d.update(format=float("inf")),
        lambda d: d.update(tasks={}),
        lambda d: d.update(tasks=5),
        lambda d: d["tasks"].update({"digits/left": {"kind": "foo"}}),
        lambda d: d["tasks"]["digits/left"].pop("labels"),
        lambda d: d["tasks"]["digits/left"].update(labels=["a", "b"]),
        lambda d: d.update(model={"encoder": "lenet"}),
        lambda d: d.update(model={"foo": 1}),
        lambda d: d.pop("texts"),
        lambda d: d.update(texts=True),
    ],
)
def test_a_model_that_says_something_else_is_refused(change: Change, folder: Path) -> None:
    edit(folder / "model" / "taskmix.json", change)
    with pytest.raises(UserError):
        library.load(folder)


def test_a_run_file_with_other_tasks_than_the_model_is_refused(folder: Path) -> None:
    run = folder / "run.yaml"
    run.write_text(run.read_text().replace("- digits/right", "- digits/larger"))
    with pytest.raises(UserError, match=r"expected a model for the task digits/larger, found dig"):
        library.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "heads.safetensors"])
def test_weights_that_are_cut_or_gone_are_refused(name: str, folder: Path) -> None:
    path = folder / "model" / name
    for content in (path.read_bytes()[:200], b"", None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match="model: expected a whole model, found"):
            library.load(folder)
        path.touch()


def unfinished(folder: Path) -> Path:
    """The folder as a kill before the end leaves it; the state of its last checkpoint."""
    (folder / "scores.json").unlink()
    for step in folder.glob("checkpoints/step-*"):
        if step.name != "step-4":
            shutil.rmtree(step)
    return folder / "checkpoints" / "step-4" / "state.json"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(journal=-1),
        lambda d: d["driver"].update(draws=5),
        lambda d: d["driver"]["policy"].update(tasks=["x"]),
        lambda d: d["driver"].clear(),
        lambda d: d["driver"]["engine"]["spent"].update(forward=[]),
        lambda d: d.update(selected={"step": "x"}),
        lambda d: d.update(selected={"step": None, "scores": None}),
    ],
)
def test_a_forged_state_is_refused_even_with_its_checksum(change: Change, folder: Path) -> None:
    path = unfinished(folder)
    state = json.loads(path.read_text())
    del state["checksum"]
    change(state)
    path.write_text(json.dumps(state | {"checksum": hash_of(json.dumps(state))}))
    with pytest.raises(UserError, match="checkpoint"):
        library.resume(folder)


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_for_a_state_is_named(text: str, folder: Path) -> None:
    unfinished(folder).write_text(text)
    with pytest.raises(UserError, match="step-4: expected a whole checkpoint"):
        library.resume(folder)


def test_no_number_of_a_state_changes_in_silence(folder: Path) -> None:
    """Every value below the top is changed once; each is noticed."""
    path = unfinished(folder)
    before = path.read_text()
    state = json.loads(before)
    for key in state:
        for value in ("x", None, [], {}, -1):
            path.write_text(json.dumps(state | {key: value}))
            with pytest.raises(UserError, match="expected a whole checkpoint"):
                library.resume(folder)
    for key in state["driver"]:
        driver = {name: value for name, value in state["driver"].items() if name != key}
        path.write_text(json.dumps(state | {"driver": driver}))
        with pytest.raises(UserError, match=r"other bytes in state.json than were written"):
            library.resume(folder)
    path.write_text(before)
    library.resume(folder)


@pytest.mark.parametrize("name", ["step-²", "step-٣", "step-x", "step-"])
def test_another_folder_among_the_checkpoints_is_left_alone(name: str, folder: Path) -> None:
    (folder / "checkpoints" / name).mkdir()
    assert library.resume(folder, steps=6).step == 6
    assert (folder / "checkpoints" / name).is_dir()


@pytest.mark.parametrize(
    "change",
    [
        *GARBAGE,
        {"step": "x"},
        {"step": True},
        {"step": -1},
        {"step": 1e300},
        {"run": 5},
        {"run": "- 1"},
        {"journal": "a", "line": "x"},
        {"journal": -1, "line": "x"},
        {"journal": 10**9, "line": "x"},
        {"line": 5},
    ],
    ids=lambda change: str(change)[:30],
)
def test_a_wrong_change_of_a_run_is_named_and_changes_nothing(change: Any, folder: Path) -> None:
    whole = {"step": 4, "run": (folder / "run.yaml").read_text()}
    text = change if isinstance(change, str) else json.dumps(whole | change)
    (folder / "change.json").write_text(text)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"change.json: expected "):
        library.resume(folder)
    assert {path: path.read_bytes() for path in before} == before


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    records = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(record) + "\n" for record in records if record))


@pytest.mark.parametrize("seconds", [1e308, -1.0])
def test_a_duration_that_no_step_has_is_named(seconds: float, folder: Path) -> None:
    rewrite(folder / "journal.jsonl", lambda d: d | ({"seconds": seconds} if "p" in d else {}))
    with pytest.raises(UserError, match=r"line 3: expected a record, found a duration of"):
        write_run_report(folder)


def test_a_journal_without_shares_is_named(folder: Path) -> None:
    rewrite(folder / "journal.jsonl", lambda d: None if d["kind"] == "shares" else d)
    with pytest.raises(UserError, match=r"journal.jsonl: expected the distribution of its draws"):
        write_run_report(folder)


def test_a_journal_nested_too_deeply_is_named(folder: Path) -> None:
    path = folder / "journal.jsonl"
    path.write_text(path.read_text() + DEEP + "\n")
    with pytest.raises(UserError, match=r"expected a record, found JSON that is nested too deeply"):
        write_run_report(folder)


def test_a_changed_run_file_is_noticed_by_every_way_to_go_on(folder: Path) -> None:
    unfinished(folder)
    run = folder / "run.yaml"
    run.write_text(run.read_text().replace("batch: 8", "batch: 9"))
    for go_on in (
        library.resume,
        lambda folder: library.resume(folder, steps=8),
        lambda folder: change_tasks(folder, drop=["digits/left"]),
    ):
        with pytest.raises(UserError, match="its checkpoint is of another configuration"):
            go_on(folder)


def test_tasks_are_not_changed_once_the_budget_is_spent(folder: Path) -> None:
    unfinished(folder)
    with pytest.raises(UserError, match="all 4 steps of its budget are spent"):
        change_tasks(folder, drop=["digits/left"])


def test_tasks_to_add_are_read_before_anything_is_done(taskmix: Any, folder: Path) -> None:
    unfinished(folder)
    for said in ("{", "5", "[1]", ""):
        answer = taskmix("resume", folder, "--steps", "8", "--add", said)
        assert answer.code == 2
        assert "Traceback" not in answer.err
    assert "expected YAML" in taskmix("resume", folder, "--add", "{").err
