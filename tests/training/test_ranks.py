"""Two ranks with half of each batch are one process with all of it."""

import json
import multiprocessing
import os
import signal
import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig

from bursar.config import RunConfig
from bursar.errors import BursarError, RunInterruptedError, StoppedError, UserError
from bursar.journal import read, without_times
from bursar.models import encoders
from bursar.models.spec import ModelSpec
from bursar.policies import POLICIES, Random
from bursar.progress import Quiet
from bursar.records import UnitRecord
from bursar.rng import stream
from bursar.selection import SELECTORS
from bursar.tasks.batches import Batch, Cut, in_order, make_batch, make_part
from bursar.tasks.data import ReadyBatches, from_data, part_of_ready
from bursar.tasks.task import Task
from bursar.training import session
from bursar.training.ranks import BUCKET, Group, Ranks, _buckets
from bursar.training.run import resume_run, run
from bursar.weighting import WEIGHTINGS

Toys = Mapping[str, Task]
NEAR = 1e-5
SPECS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2},
    "annealed": {"epochs": 3},
    "fixed": {"probabilities": {"a": 0.2, "b": 0.3, "c": 0.5}},
    "cycle": {"ratio": {"a": 2, "b": 1, "c": 1}},
    "schedule": {"phases": [{"a": 0.2, "b": 0.3, "c": 0.5}, {"a": 0.5, "b": 0.5, "c": 0.0}]},
    "exp3s": {"eta": 0.1},
    "thompson": {"primary": "c", "batches": 2},
    "active": {"every": 3, "passes": 2, "score": "batch_bald"},
}
DECIDERS = (
    {cls.name: {"policy": {"name": cls.name, **SPECS.get(cls.name, {})}} for cls in POLICIES}
    | {cls.name: {"selection": {"name": cls.name}} for cls in SELECTORS}
    | {cls.name: {"weighting": {"name": cls.name, "target": "c"}} for cls in WEIGHTINGS}
)
TEXTS = ["texts", "texts in pieces", "selected texts", "weighted texts"]
OWN = ["own model and loaders"]


def toy_config(name: str) -> RunConfig:
    return RunConfig.model_validate(
        {
            "tasks": ["a", "b", "c"],
            "model": {"dropout": 0.0},
            # Task c has ten examples: its batches are smaller, and some parts are uneven.
            "budget": {"steps": 50, "rounds": 4, "batch": 16},
            "optimizer": {"lr": 3e-3, "head_factor": 1},
            "evaluate": {"every": 25, "batch": 7},
            **DECIDERS[name],
        }
    )


def text_rows(kind: str, count: int) -> list[dict[str, Any]]:
    rng, found = stream(3, "rows", kind), []
    for _ in range(count):
        words = [str(w) for w in rng.choice(["red", "blue", "car", "tree"], rng.integers(2, 12))]
        match kind:
            case "classify":
                found.append({"text": " ".join(words), "label": str("red" in words)})
            case "regress":
                found.append({"text": " ".join(words), "label": float(words.count("car"))})
            case "tag":
                tags = ["B-thing" if word == "car" else "O" for word in words]
                found.append({"text": words, "label": tags})
    return found


def text_config(name: str, folder: Path) -> RunConfig:
    """Texts of different lengths; words are counted, where the loss is a mean over words."""
    tasks = []
    for kind in ("classify", "regress", "tag"):
        for split, count in {"train": 40, "dev": 20}.items():
            path = folder / f"{kind}-{split}.jsonl"
            if not path.exists():
                path.write_text("\n".join(map(json.dumps, text_rows(kind, count))) + "\n")
        files = {split: str(folder / f"{kind}-{split}.jsonl") for split in ("train", "dev")}
        tasks.append({"name": kind, "kind": kind, **files, "text": "text", "label": "label"})
    decider: dict[str, Any] = {
        "selected texts": {"selection": {"name": "mt_uncertainty"}, "loss": "mean"},
        "weighted texts": {"weighting": {"name": "alpha_vil", "target": "tag"}},
    }.get(name, {"policy": {"name": "exp3s", "eta": 0.1}})
    small = {"encoder": "small", "layers": 2, "width": 32, "attention_heads": 2, "vocabulary": 90}
    freeze = 1 if name in ("selected texts", "weighted texts") else 0
    return RunConfig.model_validate(
        {
            "tasks": tasks,
            "model": {**small, "max_length": 16, "dropout": 0.0, "freeze": freeze},
            "budget": {
                "steps": 50,
                "rounds": 2,
                "batch": 9,
                "accumulate": 3 if name == "texts in pieces" else 1,
            },
            # Not Adam: some biases of attention have no gradient but for rounding, and Adam would
            # blow that up to steps of full length.
            "optimizer": {"name": "sgd", "lr": 0.05, "head_factor": 1, "momentum": 0},
            "evaluate": {"every": 25, "batch": 6},
            **decider,
        }
    )


SMALL = encoders.small_config


def undropped(spec: ModelSpec, vocabulary: int) -> BertConfig:
    """The small encoder without dropout, which differs by rank."""
    found = SMALL(spec, vocabulary)
    found.hidden_dropout_prob = found.attention_probs_dropout_prob = 0.0
    return found


class Net(nn.Module):
    """One body, with weights that nobody has set a seed for, and a head for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.heads = nn.ModuleDict({task: nn.Linear(8, 2) for task in ("x", "y", "z")})

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        found = {}
        for part in batch:
            found[part.task] = self.heads[part.task](self.body(part.columns[0]))
        return found


def cross_entropy(outputs: torch.Tensor, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, batch[1])


def accuracy(outputs: Any, batch: Any) -> float:
    return float((outputs.argmax(1) == batch[1]).mean())


def own_tasks() -> list[Task]:
    """Two tasks with data sets, and one with a loader whose last batch has a single example."""
    generator, tasks = torch.Generator().manual_seed(0), []
    for name, size in {"x": 64, "y": 30, "z": 17}.items():
        x = torch.randn(size, 5, generator=generator)
        data = TensorDataset(x, (x @ torch.randn(5, generator=generator) > 0).long())
        train: Any = data if name != "z" else DataLoader(data, batch_size=8, shuffle=True)
        dev: Any = data if name != "z" else DataLoader(data, batch_size=4)
        tasks.append(from_data(name, train=train, dev=dev, loss=cross_entropy, score=accuracy))
    return tasks


def play(name: str, toys: Toys, folder: Path, data: Path) -> None:
    """One training, by as many ranks as there are."""
    to = folder / name.replace(" ", "-")
    if name in DECIDERS:
        run(toy_config(name), to, tasks=toys)
    elif name in TEXTS:
        with patch.object(encoders, "small_config", undropped):
            run(text_config(name, data), to, cache=folder / "cache")
    else:
        # Each rank has weights of its own before the run; those of the first one count.
        torch.manual_seed(int(os.environ.get("RANK", "0")))
        config = {
            "policy": {"name": "exp3s", "eta": 0.1},
            "budget": {"steps": 50, "batch": 8},
            "optimizer": {"name": "sgd", "lr": 0.1},
            "evaluate": {"every": 25, "batch": 8},
        }
        run(config, to, model=Net(), tasks=own_tasks())


def _rank(rank: int, ranks: int, port: int, work: Callable[[], None], errors: Any) -> None:
    try:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        torch.set_num_threads(1)
        work()
    except BaseException:
        errors.put(f"rank {rank}: {traceback.format_exc()}")
        raise


def on_ranks(
    work: Callable[[], None], meanwhile: Callable[[], None] = lambda: None, ranks: int = 2
) -> None:
    """Do something in several processes that train together; raise what any of them raised."""
    # Forked, so that nothing is imported again: that would take most of the time.
    context = multiprocessing.get_context("fork")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    errors = context.SimpleQueue()
    processes = [
        context.Process(target=_rank, args=(rank, ranks, port, work, errors))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    meanwhile()
    for process in processes:
        process.join(300)
    hung = [process for process in processes if process.exitcode is None]
    for process in hung:
        process.kill()
    if not errors.empty():
        pytest.fail(errors.get())
    assert not hung, "the ranks wait for each other"
    assert [process.exitcode for process in processes] == [0] * ranks


@pytest.fixture(scope="module")
def folder(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every training twice: by two ranks and by one process."""
    folder = tmp_path_factory.mktemp("ranks")
    names = [*DECIDERS, *TEXTS, *OWN]
    for name in TEXTS:
        text_config(name, folder)

    def all_to(place: str) -> None:
        for name in names:
            play(name, toys, folder / place, folder)

    on_ranks(lambda: all_to("two"), meanwhile=lambda: all_to("one"))
    return folder


def units(folder: Path) -> list[UnitRecord]:
    return [each for each in read(folder / "journal.jsonl") if isinstance(each, UnitRecord)]


@pytest.mark.parametrize("name", [*DECIDERS, *TEXTS, *OWN])
def test_two_ranks_of_half_a_batch_equal_one_process(folder: Path, name: str) -> None:
    one, two = folder / "one" / name.replace(" ", "-"), folder / "two" / name.replace(" ", "-")
    alone, together = units(one), units(two)
    assert len(together) == len(alone)
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.shares() == pytest.approx(theirs.shares(), abs=NEAR)
        assert ours.examples_of() == theirs.examples_of()
        assert ours.training_losses() == pytest.approx(theirs.training_losses(), abs=NEAR)
    for ours, theirs in zip(together, alone, strict=True):
        if hasattr(ours, "task"):
            assert ours.task == theirs.task
            assert ours.tokens == theirs.tokens
            assert ours.gain == pytest.approx(theirs.gain, abs=NEAR)
            assert ours.score == theirs.score
            assert ours.uncertainty == pytest.approx(theirs.uncertainty, abs=NEAR)
    for file in (
        "checkpoints/step-{}/model.safetensors",
        "checkpoints/step-{}/optimizer.safetensors",
    ):
        path = file.format(len(alone))
        ours, theirs = load_file(two / path), load_file(one / path)
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            assert torch.allclose(tensor, theirs[key], rtol=0, atol=NEAR), key
    scores = [json.loads((place / "scores.json").read_text()) for place in (one, two)]
    assert scores[0]["tasks"].keys() == scores[1]["tasks"].keys()
    for figure in ("step", "forward", "backward"):
        assert scores[0][figure] == scores[1][figure]
    assert scores[0]["score"] == pytest.approx(scores[1]["score"], abs=NEAR)
