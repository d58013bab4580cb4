"""What a run is for, what it pins, and what it refuses to overwrite."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import taskmix
from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Evaluation, read
from taskmix.models.build import encoder_revision
from taskmix.models.spec import ModelSpec
from taskmix.tasks import hub
from taskmix.tasks.task import Task
from taskmix.training import assembly, checkpoints
from taskmix.training.folder import Scores, config_of
from taskmix.training.objective import objective_value
from taskmix.training.session import deterministic

Toys = Mapping[str, Task]
Toy = Callable[..., RunConfig]


def evaluations(folder: Path) -> list[Evaluation]:
    return [r for r in read(folder / "journal.jsonl") if isinstance(r, Evaluation)]


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (None, lambda e: sum(e.scores.values()) / 3),
        ("b", lambda e: e.scores["b"]),
        (["a", "c"], lambda e: (e.scores["a"] + e.scores["c"]) / 2),
        ({"loss": "c"}, lambda e: -e.losses["c"]),
        ({"loss": ["a", "b"]}, lambda e: -(e.losses["a"] + e.losses["b"]) / 2),
    ],
    ids=["mean", "task", "some", "loss", "losses"],
)
def test_the_model_that_is_kept_has_the_best_objective(
    said: Any, value: Callable[[Evaluation], float], toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    rough = {"lr": 0.05, "head_factor": 1}  # so high a rate that scores go up and down
    budget, evaluate = {"steps": 24, "batch": 4}, {"every": 2}
    config = toy(objective=said, optimizer=rough, budget=budget, evaluate=evaluate)
    result = taskmix.run(config, tmp_path / "run", tasks=toys)
    found = evaluations(tmp_path / "run")
    values = [value(evaluation) for evaluation in found]
    assert [e.objective for e in found] == pytest.approx(values)
    assert result.step == 2 * (values.index(max(values)) + 1)
    assert result.objective == pytest.approx(max(values))


def test_a_weighting_is_for_its_target_unless_it_is_told_otherwise(
    toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    weighting = {"name": "joint", "target": "b"}
    config = toy(weighting=weighting, budget={"rounds": 2, "batch": 8}, evaluate={"every": 1})
    taskmix.run(config, tmp_path / "run", tasks=toys)
    for evaluation in evaluations(tmp_path / "run"):
        assert evaluation.objective == evaluation.scores["b"]


def test_an_objective_of_no_task_is_refused_before_anything_is_written(
    toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="objective: unknown task 'd'"):
        taskmix.run(toy(objective="d"), tmp_path / "run", tasks=toys)
    assert not (tmp_path / "run").exists()


def test_a_loss_counts_with_its_sign_turned() -> None:
    scores = {"a": Scores(0.5, {}, 2.0, 1), "b": Scores(0.7, {}, 1.0, 1)}
    config = RunConfig(tasks=["a", "b"], objective={"loss": ["a", "b"]})
    assert config.objective is not None
    assert objective_value(config.objective, scores) == -1.5


@pytest.mark.parametrize("theirs", ["journal.jsonl", "model", "checkpoints", "report.html"])
def test_what_no_run_has_written_is_left_alone(
    theirs: str, toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    (tmp_path / theirs).write_text("mine")
    with pytest.raises(UserError, match="a run would overwrite it"):
        taskmix.run(toy(), tmp_path, tasks=toys)
    assert (tmp_path / theirs).read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [theirs]


def test_a_damaged_checkpoint_gives_way_to_an_older_one(
    toys: Toys,
    toy: Toy,
    everything: Callable[[Path], dict[str, Any]],
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = toy(checkpoint={"every": 2, "keep": 2})
    taskmix.run(config, tmp_path / "alone", tasks=toys)
    folder = tmp_path / "run"
    with pytest.raises(interruption):
        taskmix.run(config, folder, tasks=toys, watchers=[interrupter(step=11)])
    weights = folder / "checkpoints/step-10/model.safetensors"
    spoilt = bytearray(weights.read_bytes())
    spoilt[-3] ^= 1  # one bit of one weight
    weights.write_bytes(spoilt)
    taskmix.resume(folder, tasks=toys)
    assert "found other bytes in model.safetensors than were written" in caplog.text
    assert everything(folder) == everything(tmp_path / "alone")


def test_a_changed_dev_file_is_noticed(
    tmp_path: Path, interrupter: Callable[..., Any], interruption: type[Exception]
) -> None:
    for name in ("train", "dev"):
        lines = [f"word {i % 5},{i % 2}" for i in range(20)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,y", *lines]) + "\n")
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "dev")}
    config = RunConfig(
        tasks=[{"name": "m", **files, "text": "text", "label": "y"}],
        model={"encoder": "small", "width": 16, "attention_heads": 2, "vocabulary": 80},
        budget={"steps": 6, "batch": 4},
    )
    with pytest.raises(interruption):
        taskmix.run(config, tmp_path / "run", watchers=[interrupter(step=4)])
    (tmp_path / "dev.csv").write_text("text,y\nother,0\nwords,1\n")
    with pytest.raises(UserError, match="task m: its training or dev data are not those"):
        taskmix.resume(tmp_path / "run")


def test_a_hub_encoder_is_pinned_to_the_revision_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def config(name: str, revision: str | None = None) -> Any:
        asked.append(name)
        return SimpleNamespace(_commit_hash="abc123")

    monkeypatch.setattr("taskmix.models.build.pretrained_config", config)
    assert encoder_revision("far/away") == "abc123"
    assert asked == ["far/away"]
    for ours in ("minilm", "small", "mine:Encoder", None):
        assert ModelSpec(encoder=ours).hub_name is None
    found = {"encoders": {"far/away": "abc123"}}
    config = RunConfig(tasks=["a"], model={"encoder": "far/away"}, resolved=found)
    assert config.model_spec.revision == "abc123"
    assert config.model.revision is None
    model = {"encoder": "far/away", "revision": "main"}
    said = RunConfig(tasks=["a"], model=model, resolved=found)
    assert said.model_spec.revision == "main"


def test_a_hub_data_set_is_pinned_in_the_run_file_of_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from datasets import Dataset, DatasetDict

    split = Dataset.from_dict({"text": ["a b", "b c"] * 4, "y": ["+", "-"] * 4})
    loaded = DatasetDict(train=split, validation=split)
    revisions = []

    def load(place: str, name: str | None, revision: str | None = None) -> Any:
        revisions.append(revision)
        return loaded

    monkeypatch.setattr("datasets.load_dataset", load)
    monkeypatch.setattr(assembly, "hub_revision", lambda place: "def456")
    config = RunConfig(
        tasks=[{"name": "h", "hub": "far/away", "text": "text", "label": "y"}],
        model={"encoder": "small", "width": 16, "attention_heads": 2, "vocabulary": 80},
        budget={"steps": 2, "batch": 4},
    )
    taskmix.run(config, tmp_path / "run")
    there = config_of(tmp_path / "run")
    assert there.tasks == config.tasks
    assert there.resolved.datasets == {"far/away": "def456"}
    assert there.resolved.sizes == {"h": 8}
    assert revisions == ["def456"]
    monkeypatch.setattr(assembly, "hub_revision", lambda place: "of another day")
    taskmix.run(tmp_path / "run" / "run.yaml", tmp_path / "again")
    assert revisions == ["def456", "def456"]
    taskmix.run(config, tmp_path / "run", resume=True)  # the same run, though it names no revision


def test_a_hub_that_cannot_be_asked_pins_nothing(tmp_path: Path) -> None:
    assert hub.hub_revision(str(tmp_path)) is None
    assert hub.hub_revision({"train": None}) is None


def test_deterministic_algorithms_are_used_inside_and_not_outside() -> None:
    with deterministic(enabled=True):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic(enabled=False):
        assert not torch.are_deterministic_algorithms_enabled()


def test_a_checkpoint_without_its_parts_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "step-3").mkdir()
    (tmp_path / "step-3/state.json").write_text('{"step": 3}')
    with pytest.raises(UserError, match="step-3: expected a whole checkpoint, found no checksum"):
        checkpoints.load_newest(tmp_path)
    assert checkpoints.load_newest(tmp_path / "nothing") is None
