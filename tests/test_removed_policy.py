"""Runs of `worth`, a policy that was removed: they can be read, but not trained further."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskmix.config import RunConfig, build_policy, read_yaml, write_value
from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.journal import Step, read
from taskmix.report import write_run_report
from taskmix.run_info import RunInfo
from taskmix.training.inference import load_run
from taskmix.training.run import run

TASKS = ["digits/left", "digits/right"]
SENTENCE = (
    "policy: expected one that this version has, found 'worth', which was removed after version "
    "0.2.0, which can finish its runs; use aimed, or shares learned by `taskmix improve`"
)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run as version 0.1 wrote it, with the signal and the beliefs of `worth`."""
    folder = tmp_path_factory.mktemp("old") / "run"
    run(RunConfig(tasks=TASKS, policy="random", budget={"steps": 4, "batch": 4}), folder)
    write_whole(
        folder / "run.yaml",
        write_value(read_yaml(folder / "run.yaml") | {"policy": {"name": "worth", "watch": 0.1}}),
    )
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "run":
            line["decider"] = {"name": "worth", "watch": 0.1}
        if line["kind"] == "step":
            line["skill"] = 0.4
    for step, kept in ((1, 1.0), (4, 0.2)):
        values = {key: dict.fromkeys(TASKS, kept) for key in ("rising", "skills", "kept")}
        lines.append({"kind": "diagnostics", "step": step, "values": values})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "journal.jsonl").write_text(text)
    return folder


def test_its_journal_and_report_open(old: Path) -> None:
    assert sum(isinstance(record, Step) for record in read(old / "journal.jsonl")) == 4
    assert "worth" in write_run_report(old).read_text()


def test_its_model_can_be_used(old: Path) -> None:
    opened = load_run(old)
    scores = opened.evaluate("dev")
    assert scores.keys() == set(TASKS)


@pytest.mark.parametrize("more", [[], ["--steps", "8"], ["--drop", "digits/left"]])
def test_it_is_not_resumed_and_nothing_is_written(
    old: Path, more: list[str], taskmix: Callable[..., Any]
) -> None:
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    said = taskmix("resume", old, *more)
    assert said.code == 2
    assert " ".join(said.err.split()) == f"taskmix: {old}/run.yaml: {SENTENCE}"
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before


def test_a_run_file_that_names_it_is_refused(tmp_path: Path, taskmix: Callable[..., Any]) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("tasks: [digits/left, digits/right]\npolicy: worth\n")
    said = taskmix("run", path, "--out", tmp_path / "run")
    assert (said.code, " ".join(said.err.split())) == (2, f"taskmix: {path}: {SENTENCE}")
    assert not (tmp_path / "run").exists()


def test_a_training_loop_that_names_it_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        build_policy("worth", RunInfo({"a": 4}, steps=1, batch=1))
    assert str(caught.value) == SENTENCE
