"""A new task for a trained conditioned model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.models import saving
from taskmix.models.multitask import MultiTaskModel, key
from taskmix.studies.adapt import adapt
from taskmix.tasks.batches import ready_batch
from taskmix.training.inference import load_run
from taskmix.training.run import resume_run, run
from taskmix.training.watching import Watcher

WORDS = ["the", "cat", "dog", "sat", "ran", "mat", "tree", "red"]
LABELS = {
    "three": lambda text: f"c{text.count('the') % 3}",
    "two": lambda text: "yes" if "cat" in text else "no",
    "new": lambda text: "c1" if "the" in text else "c0",
    "other": lambda text: "black" if "dog" in text else "white",
}
SETS = ["budget.steps=4", "evaluate.every=2"]


def entry(folder: Path, name: str) -> dict[str, Any]:
    rng = np.random.default_rng(len(name))
    files = {}
    for split, rows in (("train", 30), ("dev", 12)):
        texts = [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(rows)]
        lines = ["text,y", *(f"{text},{LABELS[name](text)}" for text in texts)]
        files[split] = str(folder / f"{name}-{split}.csv")
        Path(files[split]).write_text("\n".join(lines) + "\n")
    return {"name": name, "kind": "classify", "text": "text", "label": "y", **files}


@pytest.mark.parametrize("task", [5, True, None, ["new"], 2.5])
def test_a_task_that_is_no_name_is_one_sentence(before: Path, tmp_path: Path, task: Any) -> None:
    with pytest.raises(UserError, match=r"^task: expected its name, or a mapping .*, found "):
        adapt(before, task, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapt")


@pytest.fixture(scope="module")
def before(place: Path) -> Path:
    """A finished run of two tasks."""
    config = RunConfig(
        name="before",
        tasks=[entry(place, "three"), entry(place, "two")],
        model={
            "encoder": "small",
            "layers": 2,
            "width": 32,
            "attention_heads": 2,
            "vocabulary": 90,
            "max_length": 16,
            "conditional": True,
        },
        selection={"name": "mt_uncertainty"},
        budget={"steps": 6, "batch": 6},
        optimizer={"lr": 3e-3},
        device="cpu",
    )
    run(config, place / "before", cache=place)
    return place / "before"


def answers(folder: Path, task: str) -> torch.Tensor:
    model, _ = saving.load(folder / "model")
    ids = torch.randint(5, 15, (4, 7), generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        found: torch.Tensor = model(ready_batch(task, np.arange(4), inputs, {}))[task]
    return found


def test_the_old_tasks_answer_with_the_same_bits(before: Path, place: Path, tmp_path: Path) -> None:
    old = {task: answers(before, task) for task in ("three", "two")}
    done = adapt(
        before, entry(place, "new"), tmp_path / "out", source="three", sets=SETS, cache=place
    )
    assert done.finished is not None
    assert list(done.finished.tasks) == ["new"]
    assert (done.row, done.head) == ("three", "three")
    for task, logits in old.items():
        assert torch.equal(answers(tmp_path / "out", task), logits)
        assert torch.equal(answers(before, task), logits)
    assert set(load_run(tmp_path / "out").evaluate(cache=place)) == {"new"}
    assert resume_run(tmp_path / "out", cache=place) == done.finished


def weights(folder: Path) -> dict[str, torch.Tensor]:
    model, _ = saving.load(folder / "model")
    return dict(model.state_dict())


@pytest.mark.parametrize("train_all", [False, True])
def test_a_new_row_and_head_train_and_the_rest_as_asked(
    train_all: bool, before: Path, place: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"sets": [*SETS, "evaluate.keep=last"], "cache": place}
    adapt(before, entry(place, "new"), tmp_path / "out", train_all=train_all, **options)
    was, now = weights(before), weights(tmp_path / "out")
    assert {name for name in now if name not in was} == {
        "encoder.model.task_embeddings.rows.z_new",
        f"heads.{key('new')}.linear.weight",
        f"heads.{key('new')}.linear.bias",
    }
    moved = {name for name in was if not torch.equal(was[name], now[name])}
    assert any("film" in name for name in moved) == train_all
    assert not any("heads" in name or "rows" in name for name in moved)
    assert bool(moved) == train_all


def test_a_stopped_adaptation_goes_on_bit_for_bit(
    before: Path, place: Path, tmp_path: Path
) -> None:
    class StopError(Exception):
        pass

    class Stop(Watcher):
        def advanced(self, record: Any) -> None:
            if record.step == 3:
                raise StopError

    task = entry(place, "new")
    adapt(before, task, tmp_path / "alone", sets=SETS, cache=place)
    with pytest.raises(StopError):
        adapt(before, task, tmp_path / "stopped", sets=SETS, cache=place, watchers=[Stop()])
    resume_run(tmp_path / "stopped", cache=place)
    one, other = weights(tmp_path / "alone"), weights(tmp_path / "stopped")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_zero_shot_is_each_embedding_with_each_head_that_fits(
    before: Path, place: Path, tmp_path: Path
) -> None:
    done = adapt(
        before, entry(place, "new"), tmp_path / "out", source="best", fraction=0, cache=place
    )
    assert done.finished is None
    assert not (tmp_path / "out").exists()
    assert {(each.row, each.head) for each in done.table} == {
        ("three", "three"),
        ("two", "three"),
        ("random", "three"),
    }
    scores = [each.score for each in done.table]
    assert scores == sorted(scores, reverse=True)
    assert done.row == done.table[0].row
    # By hand: the logits of c0 and c1 from the head of `three`, under its own embedding.
    model, tokenizer = saving.load(before / "model")
    assert isinstance(model, MultiTaskModel)
    assert tokenizer is not None
    lines = (place / "new-train.csv").read_text().splitlines()[1:]
    right = 0
    labels = model.kinds["three"].labels  # type: ignore[attr-defined]
    for line in lines:
        text, label = line.split(",")
        [encoded] = tokenizer.encode([text], [None])
        ids = torch.tensor([encoded.ids])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        with torch.no_grad():
            logits = model(ready_batch("three", np.arange(1), inputs, {}))["three"][0]
        c0, c1 = (float(logits[labels.index(name)]) for name in ("c0", "c1"))
        right += label == ("c0" if c0 > c1 else "c1")
    [own] = [each for each in done.table if each.row == "three"]
    assert own.score == pytest.approx(right / len(lines))


def test_the_best_embedding_is_taken(before: Path, place: Path, tmp_path: Path) -> None:
    done = adapt(
        before, entry(place, "new"), tmp_path / "out", source="best", sets=SETS, cache=place
    )
    assert (done.row, done.head) == (done.table[0].row, done.table[0].head)


def test_mistakes_are_one_sentence(before: Path, place: Path, tmp_path: Path) -> None:
    new, other = entry(place, "new"), entry(place, "other")
    out = tmp_path / "out"
    with pytest.raises(UserError, match="--from: unknown task 'tow'; did you mean 'two'"):
        adapt(before, new, out, source="tow", cache=place)
    with pytest.raises(UserError, match="task other: expected a head of the model that fits"):
        adapt(before, other, out, source="best", cache=place)
    with pytest.raises(UserError, match="fraction: expected a share from 0 to 1, found 2"):
        adapt(before, new, out, fraction=2, cache=place)
    with pytest.raises(UserError, match="fraction: expected 1 for a task of one's own files"):
        adapt(before, new, out, fraction=0.5, cache=place)
    with pytest.raises(UserError, match="task 'two': expected a new name"):
        adapt(before, entry(place, "two"), out, cache=place)
    with pytest.raises(UserError, match="expected the folder of a finished run"):
        adapt(tmp_path, new, out, cache=place)
    assert not out.exists()


def test_a_plain_model_is_one_sentence(place: Path, tmp_path: Path) -> None:
    config = RunConfig(
        tasks=[entry(place, "two")],
        model={"encoder": "small", "layers": 1, "width": 16, "vocabulary": 90},
        budget={"steps": 1},
        device="cpu",
    )
    run(config, tmp_path / "plain", cache=place)
    with pytest.raises(UserError, match="expected a task-conditioned model"):
        adapt(tmp_path / "plain", entry(place, "new"), tmp_path / "out", cache=place)
