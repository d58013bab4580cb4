"""Batches in the background, mixed batches through one pass, and a warm start."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from taskmix.config import RunConfig
from taskmix.config.schema import Budget
from taskmix.models.build import build
from taskmix.models.encoders import Encoder, Representation
from taskmix.models.multitask import TASK_IDS, MultiTaskModel
from taskmix.models.spec import ModelSpec
from taskmix.tasks.batches import Batch, make_batch
from taskmix.tasks.kinds import Classify
from taskmix.tasks.task import Task
from taskmix.training import loading
from taskmix.training.assembly import assemble
from taskmix.training.loading import Loader, dev_batches, to_device
from taskmix.training.prepare import Prepared, prepare, resolve

CPU = torch.device("cpu")


@pytest.fixture
def prepared(toys: Mapping[str, Task], toy: Any) -> list[Prepared]:
    return prepare(resolve(toy(), toys), None, toy())


def items(batch: Batch) -> list[int]:
    return batch.parts[0].items.tolist()


def test_batches_made_ahead_come_in_the_order_of_the_stream(prepared: list[Prepared]) -> None:
    ahead, plain = (Loader(prepared, Budget(batch=4), 1, CPU) for _ in range(2))
    order = np.random.default_rng(1).choice(["a", "b", "c"], 60)
    for task in order:
        assert items(ahead.next(task)) == items(plain.streams[task].next())


def test_a_loader_goes_on_where_its_state_was_taken_whatever_was_made_ahead(
    prepared: list[Prepared],
) -> None:
    whole = Loader(prepared, Budget(batch=4), 1, CPU)
    for task in "abcaabbc":
        whole.next(task)
    resumed = Loader(prepared, Budget(batch=4), 1, CPU)
    resumed.next("a")  # something is made ahead that must not be served
    resumed.load_state_dict(whole.state_dict())
    for task in "abcabc":
        assert items(resumed.next(task)) == items(whole.next(task))


def test_few_batches_wait_however_many_tasks_there_are(
    prepared: list[Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "MAX_AHEAD", 2)
    loader = Loader(prepared, Budget(batch=4), 1, CPU)
    served = [items(loader.next(task)) for task in "abcabcabc"]
    plain = Loader(prepared, Budget(batch=4), 1, CPU)
    assert served == [items(plain.streams[task].next()) for task in "abcabcabc"]
    assert len(loader._ahead) <= 2


def test_pieces_of_a_mixed_batch_hold_each_item_once(prepared: list[Prepared]) -> None:
    chosen = {"a": np.array([3, 1, 4]), "b": np.array([1, 5]), "c": np.array([9])}
    for count in (1, 2, 4, 6, 20):
        batch = Loader(prepared, Budget(batch=4, accumulate=count), 1, CPU).of(chosen)
        pieces = batch.pieces or (batch,)
        found = Counter((part.task, i) for piece in pieces for part in piece for i in part.items)
        assert found == Counter((part.task, i) for part in batch for i in part.items)
        assert max(piece.examples for piece in pieces) <= -(-6 // min(count, 6))


def test_every_dev_item_comes_once_and_an_early_end_leaves_no_thread(
    prepared: list[Prepared],
) -> None:
    split = prepared[0].dev.items
    found = [i for batch in dev_batches("a", split, 7, CPU) for i in items(batch)]
    assert sorted(found) == list(range(len(split)))
    some = dev_batches("a", split, 7, CPU)
    next(some)
    some.close()


class Taught(Encoder):
    """An encoder that adds its task's number to every feature."""

    width = 4

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.passes = 0

    def forward(self, inputs: Mapping[str, torch.Tensor]) -> Representation:
        self.passes += 1
        pixels = inputs["pixels"].float().flatten(1)[:, :4] * self.scale
        return Representation(pixels + 1000 * inputs[TASK_IDS].unsqueeze(-1))


def test_a_mixed_batch_passes_once_and_each_item_knows_its_task(prepared: list[Prepared]) -> None:
    kinds = {entry.task.name: entry.task.kind for entry in prepared}
    model = MultiTaskModel(Taught(), kinds, ModelSpec(dropout=0.0), seed=1).eval()
    splits = {entry.task.name: entry.train for entry in prepared}
    chosen = {"c": np.array([2]), "a": np.array([0, 7, 3]), "b": np.array([1, 1])}
    mixed = to_device(make_batch(splits, chosen), CPU)
    encoder = model.encoder
    assert isinstance(encoder, Taught)
    together = model(mixed)
    assert encoder.passes == 1
    for task, places in chosen.items():
        alone = model(to_device(make_batch(splits, {task: places}), CPU))[task]
        torch.testing.assert_close(together[task], alone)


def test_a_warm_start_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMIX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "mood.csv"
    path.write_text("text,y\n" + "".join(f"word {i} of {i % 7},{i % 2}\n" for i in range(4000)))
    files = {"train": str(path), "dev": str(path), "text": "text", "label": "y"}
    config = RunConfig(
        tasks=[{"name": "mood", **files}],
        model={"encoder": "small", "width": 16, "attention_heads": 2, "vocabulary": 100},
    )
    assemble(config).data  # noqa: B018 (the first start reads and encodes)
    read = [0]
    original = Path.open

    def counting(self: Path, *args: Any, **kwargs: Any) -> Any:
        file = original(self, *args, **kwargs)
        if self == path:
            return _Counting(file, read)
        return file

    monkeypatch.setattr(Path, "open", counting)
    assemble(config).data  # noqa: B018
    # The file stands for two splits, train and dev, each of which has a name of its own.
    assert read[0] <= 2 * path.stat().st_size + 4 * 2**13


class _Counting:
    """A file whose reads are counted."""

    def __init__(self, file: Any, total: list[int]) -> None:
        self._file = file
        self._total = total

    def read(self, *size: int) -> Any:
        data = self._file.read(*size)
        self._total[0] += len(data)
        return data

    def __enter__(self) -> "_Counting":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Any:
        for line in self._file:
            self._total[0] += len(line)
            yield line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_kind_may_bring_a_head_of_its_own() -> None:
    class Deep(Classify):
        def head(self, inputs: int, make: Any) -> torch.nn.Module:
            return torch.nn.Sequential(make(inputs, 7), torch.nn.Linear(7, self.width))

    model = build(ModelSpec(encoder="cnn"), {"a": Deep(("no", "yes"))}, None, seed=1)
    assert len(model.heads["a"]) == 2  # type: ignore[arg-type]
