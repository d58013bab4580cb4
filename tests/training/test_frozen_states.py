"""Frozen layers run once, and training from what they gave is training from the text."""

import errno
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from taskmix.config import RunConfig
from taskmix.errors import TaskmixError
from taskmix.journal import Round, read
from taskmix.models.build import build
from taskmix.models.multitask import MultiTaskModel
from taskmix.rng import stream
from taskmix.tasks.batches import FROZEN_STATES, make_batch
from taskmix.tasks.encoding import Encoded
from taskmix.training import engine
from taskmix.training.assembly import tokenizer_of
from taskmix.training.frozen_states import FrozenStates
from taskmix.training.loading import to_device
from taskmix.training.prepare import prepare, resolve
from taskmix.training.run import resume_run as resume
from taskmix.training.run import run

WORDS = ["red", "blue", "green", "apple", "car", "house", "tree", "river"]
CPU = torch.device("cpu")


def entries(folder: Path) -> list[dict[str, Any]]:
    """One task of pairs, one whose examples are several sequences each."""
    rng = stream(0, "rows")

    def text(most: int) -> str:
        return " ".join(rng.choice(WORDS, rng.integers(1, most)))

    rows: dict[str, Any] = {
        "pairs": lambda: {"text": text(12), "other": text(5), "label": str(rng.integers(2))},
        "choices": lambda: {
            "text": text(9),
            "choices": [text(4) for _ in range(rng.integers(2, 5))],
            "label": 0,
        },
    }
    for name, row in rows.items():
        for split, count in (("train", 40), ("dev", 14)):
            lines = [json.dumps(row()) for _ in range(count)]
            (folder / f"{name}-{split}.jsonl").write_text("\n".join(lines) + "\n")
    columns = {
        "pairs": {"kind": "classify", "pair": "other"},
        "choices": {"kind": "choose", "choices": ["choices"]},
    }
    return [
        {
            "name": name,
            "text": "text",
            "label": "label",
            "train": str(folder / f"{name}-train.jsonl"),
            "dev": str(folder / f"{name}-dev.jsonl"),
            **columns[name],
        }
        for name in rows
    ]


def config(folder: Path, freeze: int, name: str = "alpha_vil") -> RunConfig:
    return RunConfig(
        tasks=entries(folder),
        model={
            "encoder": "small",
            "layers": 3,
            "freeze": freeze,
            "width": 16,
            "attention_heads": 2,
            "vocabulary": 90,
        },
        weighting={"name": name, "target": "pairs"},
        budget={"rounds": 3, "batch": 8},
        optimizer={"lr": 3e-3, "head_factor": 1},
        evaluate={"every": 1},
        device="cpu",
    )


@pytest.fixture
def built(tmp_path: Path) -> tuple[MultiTaskModel, dict[str, Encoded]]:
    """A model with two of three layers frozen, and the training splits."""
    made = config(tmp_path, freeze=2)
    tasks = resolve(made)
    tokenizer = tokenizer_of(tasks, made, tmp_path)
    prepared = prepare(tasks, tokenizer, made, tmp_path)
    kinds = {entry.task.name: entry.task.kind for entry in prepared}
    model = build(made.model, kinds, tokenizer, 1)
    return model, {entry.task.name: entry.train for entry in prepared}


@pytest.mark.parametrize("task", ["pairs", "choices"])
def test_the_model_gives_the_same_from_kept_states(built, task, tmp_path):
    model, splits = built
    split = FrozenStates(model, batch=8, device=CPU, cache=tmp_path).add(task, splits[task])
    items = np.array([5, 0, 33, 12])
    model.eval()
    runs = []
    layer = model.encoder.model.encoder.layer[1]
    layer.attention.register_forward_hook(lambda *_: runs.append(1))
    with torch.inference_mode():
        expected = logits(model, task, splits[task], items)
        assert runs
        runs.clear()
        found = logits(model, task, split, items)
    assert not runs
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    part = split.take(items)
    with torch.inference_mode():
        torch.testing.assert_close(logits(model, task, part, np.arange(4)), found)


def logits(model: MultiTaskModel, task: str, split: Encoded, items: Any) -> torch.Tensor:
    batch = to_device(make_batch({task: split}, {task: items}), CPU)
    found: torch.Tensor = model(batch)[task]
    return found


def test_states_are_computed_once_and_again_for_other_weights(built, tmp_path):
    model, splits = built
    said: list[str] = []

    def add() -> Encoded:
        store = FrozenStates(model, batch=8, device=CPU, cache=tmp_path, working=said.append)
        return store.add("pairs", splits["pairs"])

    first = add()
    assert len(said) == 5
    assert said[-1] == "frozen layers of pairs: example 32 of 40"
    assert np.array_equal(add().ragged[FROZEN_STATES], first.ragged[FROZEN_STATES])
    assert len(said) == 5
    with torch.no_grad():
        model.encoder.model.encoder.layer[2].output.dense.weight.add_(1)  # trained: no matter
    add()
    assert len(said) == 5
    with torch.no_grad():
        model.encoder.model.encoder.layer[1].output.dense.weight.add_(1)
    assert not np.array_equal(add().ragged[FROZEN_STATES], first.ragged[FROZEN_STATES])
    assert len(said) == 10
    model.encoder.model.config.num_attention_heads = 4
    add()
    assert len(said) == 15
    assert not list((tmp_path / "frozen").glob(".*making*"))


def test_what_was_begun_and_not_finished_is_not_kept(built, tmp_path):
    model, splits = built

    def stop(_text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FrozenStates(model, batch=8, device=CPU, cache=tmp_path, working=stop).add(
            "pairs", splits["pairs"]
        )
    assert not list((tmp_path / "frozen").iterdir())
    layer = model.encoder.model.encoder.layer[2]
    assert "forward" not in vars(layer)


def test_damaged_states_are_computed_again(built, tmp_path, caplog):
    model, splits = built
    store = FrozenStates(model, batch=8, device=CPU, cache=tmp_path)
    first = np.array(store.add("pairs", splits["pairs"]).ragged[FROZEN_STATES])
    [path] = (tmp_path / "frozen").glob("*/states.npy")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 64]))
    again = store.add("pairs", splits["pairs"]).ragged[FROZEN_STATES]
    assert f"{path.parent}: found other bytes than were written" in caplog.text
    assert np.array_equal(again, first)


def test_a_full_disk_is_found_before_states_are_mapped(built, tmp_path, monkeypatch):
    """Later, a write to the mapped file would end the process with SIGBUS."""

    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    model, splits = built
    with pytest.raises(TaskmixError, match=r"cache cannot be written \(No space left"):
        FrozenStates(model, batch=8, device=CPU, cache=tmp_path).add("pairs", splits["pairs"])
    assert not list((tmp_path / "frozen").iterdir())


def test_too_many_states_are_not_kept(built, tmp_path, caplog):
    model, splits = built
    with caplog.at_level(logging.WARNING):
        store = FrozenStates(model, batch=8, device=CPU, cache=tmp_path, max_bytes=1000)
        assert store.add("pairs", splits["pairs"]) is splits["pairs"]
    assert "pairs: frozen layers run each time" in caplog.text
    assert not list((tmp_path / "frozen").iterdir())


@pytest.mark.parametrize("strange", ["more than a tensor", "padding"])
def test_states_that_do_not_suffice_are_not_kept(built, tmp_path, caplog, monkeypatch, strange):
    model, splits = built
    layers = model.encoder.model.encoder.layer
    if strange == "padding":
        plain = layers[2].forward
        monkeypatch.setattr(
            layers[2], "forward", lambda x, *a, **k: plain(x + x.mean(1, True), *a, **k)
        )
    else:
        plain, above = layers[1].forward, layers[2].forward
        monkeypatch.setattr(layers[1], "forward", lambda *a, **k: (plain(*a, **k), 0))
        monkeypatch.setattr(layers[2], "forward", lambda x, *a, **k: above(x[0], *a, **k))
    with caplog.at_level(logging.WARNING):
        store = FrozenStates(model, batch=8, device=CPU, cache=tmp_path)
        assert store.add("pairs", splits["pairs"]) is splits["pairs"]
    assert "pairs: frozen layers run each time" in caplog.text
    assert not list((tmp_path / "frozen").iterdir())


def test_frozen_layers_drop_nothing_out(built):
    model, _ = built
    model.train()
    layers = model.encoder.model.encoder.layer
    dropping = [any(m.training for m in layer.modules()) for layer in layers]
    assert dropping == [False, False, True]
    assert not model.encoder.model.embeddings.training
    assert all(m.training for m in model.heads.modules())


@pytest.mark.parametrize("name", ["alpha_vil", "diw", "diw_every_try", "joint", "single"])
def test_a_run_with_kept_states_is_the_run_without(name, tmp_path, monkeypatch):
    made = config(tmp_path, freeze=2, name=name)
    run(made, tmp_path / "kept", cache=tmp_path)
    assert len(list((tmp_path / "frozen").iterdir())) in (4, 5)  # 5: dev in halves
    monkeypatch.setattr(
        engine, "FrozenStates", lambda *args, **kw: FrozenStates(*args, **kw, max_bytes=0)
    )
    run(made, tmp_path / "computed", cache=tmp_path)
    ours, theirs = (
        [record for record in read(tmp_path / folder / "journal.jsonl") if type(record) is Round]
        for folder in ("kept", "computed")
    )
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-4)
        assert one.dev_loss == pytest.approx(other.dev_loss, rel=1e-4)


def test_a_run_with_kept_states_resumes_bit_for_bit(
    tmp_path, everything, interrupter, interruption
):
    made = config(tmp_path, freeze=2)
    run(made, tmp_path / "alone", cache=tmp_path)
    with pytest.raises(interruption):
        run(made, tmp_path / "stopped", cache=tmp_path, watchers=[interrupter(step=2)])
    for path in (tmp_path / "frozen").iterdir():
        shutil.rmtree(path)  # another machine has none of them
    resume(tmp_path / "stopped", cache=tmp_path)
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")
