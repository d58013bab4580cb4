"""Trackers hear of every record of a run once, however often the run is killed."""

import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from taskmix.config import RunConfig, load
from taskmix.errors import RunInterruptedError, UserError
from taskmix.journal import Diagnostics, Evaluation, Shares, read
from taskmix.training import tracking
from taskmix.training.change import extend
from taskmix.training.run import resume_run, run
from taskmix.training.tracking import values_of

pytest.importorskip("accelerate")
CONFIG = {
    "name": "tracked",
    "tasks": ["digits/left", "digits/right"],
    "policy": {"name": "exp3s", "eta": 0.1},
    "budget": {"steps": 20, "batch": 8},
    "evaluate": {"every": 5, "examples": 20},
    "checkpoint": {"every": 4},
}


def config(*trackers: Any, **changes: Any) -> RunConfig:
    return RunConfig(**CONFIG, **changes, track=list(trackers))


def in_a_life(work: Callable[[], object], kill_at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Work in a process that is killed when the trackers hear of something for the n-th time."""
    child = os.fork()
    if child == 0:
        heard, real = [0], tracking.Tracking._send_step

        def send_step(self: Any) -> None:
            heard[0] += bool(self._values)
            real(self)
            if heard[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(tracking.Tracking, "_send_step", send_step)
        monkeypatch.setattr(tracking, "SECONDS", 0.0)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    assert killed or os.waitstatus_to_exitcode(status) == 0
    return killed


def events(folder: Path) -> Counter[tuple[str, int]]:
    """How often TensorBoard shows each value of each step."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    shown = accumulator.EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    shown.Reload()
    return Counter(
        (tag, event.step) for tag in shown.Tags()["scalars"] for event in shown.Scalars(tag)
    )


def expected_events(folder: Path) -> set[tuple[str, int]]:
    tasks = CONFIG["tasks"]
    return {
        (name, int(getattr(record, "step", 0)))
        for record in read(folder / "journal.jsonl")
        for name in values_of(record, tasks)  # type: ignore[arg-type]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_step_once_after_five_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    killed = in_a_life(lambda: run(config("tensorboard"), folder), 6, monkeypatch)
    for kill_at in (2, 4, 3, 4):
        killed = in_a_life(lambda: resume_run(folder), kill_at, monkeypatch) and killed
    assert killed
    identity = json.loads((folder / "tracking.json").read_text())["id"]
    in_a_life(lambda: resume_run(folder), -1, monkeypatch)
    assert (folder / "scores.json").exists()
    assert json.loads((folder / "tracking.json").read_text())["id"] == identity
    found = events(folder)
    assert set(found) == expected_events(folder)
    assert set(found.values()) == {1}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_extended_run_is_tracked_to_its_new_end(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    run(config("tensorboard"), folder)
    extend(folder, 24)
    resume_run(folder)
    found = events(folder)
    assert set(found) == expected_events(folder)
    assert set(found.values()) == {1}


def test_wandb_continues_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = tmp_path / "run"
    offline = {"name": "wandb", "mode": "offline"}
    for work in (lambda: run(config(offline), folder), lambda: resume_run(folder)):
        in_a_life(work, 5, monkeypatch)
    in_a_life(lambda: resume_run(folder), -1, monkeypatch)
    runs = {path.name.rpartition("-")[2] for path in (folder / "wandb").glob("offline-run-*")}
    assert runs == {json.loads((folder / "tracking.json").read_text())["id"]}


@pytest.mark.filterwarnings("ignore")  # of its dependencies
def test_mlflow_continues_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    folder = tmp_path / "run"
    for work in (lambda: run(config("mlflow"), folder), lambda: resume_run(folder)):
        in_a_life(work, 5, monkeypatch)
    in_a_life(lambda: resume_run(folder), -1, monkeypatch)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("taskmix").experiment_id
    (found,) = client.search_runs([experiment])
    logged = {
        (name, metric.step)
        for name in found.data.metrics
        for metric in client.get_metric_history(found.info.run_id, name)
    }
    assert logged == expected_events(folder)


def test_trackio_continues_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    pytest.importorskip("trackio")
    folder = tmp_path / "run"
    in_a_life(lambda: run(config("trackio"), folder), -1, monkeypatch)
    extend(folder, 24)
    in_a_life(lambda: resume_run(folder), -1, monkeypatch)
    with sqlite3.connect(tmp_path / "trackio" / "taskmix.db") as stored:
        rows = stored.execute("select run_id, step from metrics").fetchall()
    assert len({identity for identity, _ in rows}) == 1
    assert sorted(step for _, step in rows) == list(range(1, 25))


def test_trackers_print_nothing_among_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    class Talking(Unsent):
        def start(self) -> None:
            print("started")

        def log(self, values: dict[str, float], step: int) -> None:
            pass

        def finish(self) -> None:
            print("finished")

    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "tensorboard", Talking)
    run(config("tensorboard"), tmp_path / "run")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "started" in captured.err
    assert "finished" in captured.err


class Unsent:
    """A tracker whose process ends while it logs the first step."""

    started: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, **options: Any) -> None:
        self.started.append(options)
        known = options.get("run_id") or f"run-{len(self.started)}"
        self.tracker = SimpleNamespace(info=SimpleNamespace(run_id=known))

    def start(self) -> None:
        pass

    def log(self, values: dict[str, float], step: int) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("name", "key"), [("mlflow", "run_id"), ("trackio", "name")])
def test_a_tracked_run_is_continued_if_its_first_process_ends_before_anything_is_sent(
    name: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    monkeypatch.setattr(Unsent, "started", [])
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, name, Unsent)
    run(config(), tmp_path)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            tracking.Tracking(config(name), tmp_path).send()
    first, second = Unsent.started
    assert second[key] == (first[key] if name == "trackio" else "run-1")


class Failing:
    """A tracker whose server is down for a while."""

    name = "wandb"
    down = True
    steps: ClassVar[list[int]] = []

    def __init__(self, **options: Any) -> None:
        """Take any options."""

    def start(self) -> None:
        """Start nothing."""

    def log(self, values: Any, step: int) -> None:
        if self.down and step == 20:
            raise ConnectionError("no route\nto host")
        self.steps.append(step)

    def finish(self) -> None:
        if self.down:
            raise ConnectionError("no route to host")


def test_a_server_that_is_down_is_one_sentence_and_resume_sends_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    monkeypatch.setattr(Failing, "steps", [])
    monkeypatch.setattr(tracking, "check_trackers", lambda config: None)
    monkeypatch.setattr("taskmix.training.assembly.check_trackers", lambda config: None)
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "wandb", Failing)
    with pytest.raises(RunInterruptedError, match=r"track: step 20 was not sent \(no route"):
        run(config("wandb"), tmp_path)
    assert "track: wandb: no route to host" in caplog.text
    assert (tmp_path / "scores.json").exists()  # the last step is sent when the run is finished
    monkeypatch.setattr(Failing, "down", False)
    for _ in range(2):
        resume_run(tmp_path)
    assert Failing.steps == list(range(1, 21))


def test_values_of_records() -> None:
    tasks = ["a", "b"]
    assert values_of(Shares(1, [0.25, 0.75]), tasks) == {"share/a": 0.25, "share/b": 0.75}
    beliefs = Diagnostics(3, {"weights": {"a": 0.5}, "rates": [1, float("inf")], "name": "x"})
    assert values_of(beliefs, tasks) == {"decider/weights/a": 0.5, "decider/rates/0": 1.0}
    evaluation = Evaluation(4, "dev", 0.5, {"a": 0.5}, {"a": 1.5}, objective=0.25, forward=9)
    assert values_of(evaluation, tasks) == {
        "score": 0.5,
        "objective": 0.25,
        "examples/forward": 9,
        "examples/backward": 0,
        "score/a": 0.5,
        "dev_loss/a": 1.5,
    }


def test_trackers_are_no_part_of_what_a_run_is(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    run(config(), folder)
    run(config("tensorboard"), folder, resume=True)
    assert "track:" not in (folder / "run.yaml").read_text()


def test_a_tracker_that_is_not_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"track: .*expected tensorboard or wandb .* found 'paper'"):
        config("paper")
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="track: wandb: expected accelerate and wandb, found"):
        run(config("wandb"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_file_names_trackers_with_options(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("tasks: [digits/left]\ntrack: [tensorboard, {name: wandb, mode: offline}]\n")
    assert load(path).track == ({"name": "tensorboard"}, {"name": "wandb", "mode": "offline"})


@pytest.mark.parametrize(
    "text", ["[" * 5000, "5", '{"id": "x"}', '{"id": "x", "records": 1e999, "changes": 0}']
)
def test_a_damaged_state_of_the_trackers_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "tracking.json").write_text(text)
    with pytest.raises(UserError, match=r"tracking.json: expected the state of the trackers, foun"):
        tracking.Tracking(config("tensorboard"), tmp_path).send()
