"""Streams: one loader a task, drawn when a batch is wanted."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import taskmix
from taskmix.errors import UserError
from taskmix.mixing import Streams


class Numbers(IterableDataset[int]):
    """Numbers in an order that depends on the epoch, and no state of its own."""

    def __init__(self, size: int) -> None:
        self.size, self.epoch = size, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([(i * 7 + self.epoch) % self.size for i in range(self.size)])


def plain() -> dict[str, object]:
    return {name: DataLoader(Numbers(size), batch_size=4) for name, size in SIZES.items()}


def rows_of(size: int) -> Any:
    rows = datasets.Dataset.from_dict({"i": list(range(size))})
    return rows.to_iterable_dataset(num_shards=2)


def stateful() -> dict[str, object]:
    return {name: rows_of(size).batch(4) for name, size in SIZES.items()}


def with_a_buffer() -> dict[str, object]:
    """A shuffle buffer is not in the state of `datasets`; a loader without a state is exact."""
    return {
        name: DataLoader(rows_of(size).shuffle(seed=1, buffer_size=8), batch_size=4)
        for name, size in SIZES.items()
    }


def stateful_loaders() -> dict[str, object]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return {
        name: StatefulDataLoader(Numbers(size), batch_size=4, num_workers=2)
        for name, size in SIZES.items()
    }


SIZES = {"a": 20, "b": 50, "c": 30}


def train(streams: Streams, draws: int) -> list[str]:
    seen = []
    for batch in itertools.islice(streams, draws):
        rest = {key: value for key, value in batch.items() if key not in ("draw", "task")}
        seen.append(f"{batch['draw']} {batch['task']} {rest}")
        streams.settle(batch["draw"], loss=1 / batch["draw"], examples=4)
    return seen


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("loaders", [plain, stateful, with_a_buffer, stateful_loaders])
def test_resumed_streams_go_on_as_if_nothing_had_happened(
    loaders: Callable[[], dict[str, object]], tmp_path: Path
) -> None:
    def fresh(folder: str) -> Streams:
        policy, path = taskmix.Progress(list(SIZES)), tmp_path / folder / "journal.jsonl"
        return Streams(policy, loaders(), seed=3, sizes=SIZES, journal=path)  # type: ignore[arg-type]

    whole = train(fresh("whole"), 60)
    first = fresh("parts")
    before = train(first, 31)
    state = json.loads(json.dumps(first.state_dict()))
    train(first, 4)
    second = fresh("parts")
    second.load_state_dict(state)
    assert before + train(second, 29) == whole
    journals = [(tmp_path / f / "journal.jsonl").read_bytes() for f in ("whole", "parts")]
    assert journals[0] == journals[1]


class Places(Numbers):
    """Numbers divided among workers, with a place that is 0 again at the end, as in its state."""

    place = 0

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        assert worker is not None
        items = list(super().__iter__())[worker.id :: worker.num_workers]
        while self.place < len(items):
            self.place += 1
            yield items[self.place - 1]
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_a_worker_that_had_ended_yields_nothing_again_after_any_cut() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def fresh() -> Streams:
        loader = StatefulDataLoader(Places(20), batch_size=4, num_workers=2)
        return Streams(taskmix.Random(["a"]), {"a": loader}, seed=3)

    whole = train(fresh(), 8)  # an epoch has six batches, the last of each worker a short one
    for cut in range(1, 8):
        first = fresh()
        before = train(first, cut)
        second = fresh()
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert before + train(second, 8 - cut) == whole, cut


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"persistent_workers": True}, r"expected persistent_workers=False, .*, found True"),
        ({"snapshot_every_n_steps": 3}, r"expected snapshot_every_n_steps=1, .*, found 3"),
        ({"in_order": False}, r"expected in_order=True, .*, found False"),
    ],
)
def test_workers_that_cannot_resume_exactly_are_refused_at_the_start(
    options: dict[str, Any], found: str
) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(Numbers(8), batch_size=4, num_workers=2, **options)
    with pytest.raises(UserError, match=rf"^loaders, a: {found}$"):
        Streams(taskmix.Random(["a"]), {"a": loader}, seed=1)


def test_a_loader_that_cannot_go_on_is_said_in_a_sentence() -> None:
    class Forgetful(list[list[int]]):
        def state_dict(self) -> dict[str, int]:
            return {"place": 1}

        def load_state_dict(self, state: dict[str, int]) -> None:
            raise ValueError("last_yielded_worker_id does not match")

    streams = Streams(taskmix.Random(["a"]), {"a": Forgetful([[1], [2]])}, seed=1)
    train(streams, 1)
    other = Streams(taskmix.Random(["a"]), {"a": Forgetful([[1], [2]])}, seed=1)
    with pytest.raises(UserError, match=r"^loaders, a: expected a loader that .* does not match; "):
        other.load_state_dict(streams.state_dict())


def test_a_stream_that_ends_begins_again_in_a_new_order() -> None:
    streams = Streams(taskmix.Random(["a"]), {"a": DataLoader(Numbers(8), batch_size=8)}, seed=1)
    batches = [batch["batch"].tolist() for batch in itertools.islice(streams, 3)]
    assert [sorted(batch) for batch in batches] == [list(range(8))] * 3
    assert batches[0] != batches[1] != batches[2]


def test_what_is_wrong_is_said_in_a_sentence() -> None:
    policy = taskmix.Random(["a", "b"])
    with pytest.raises(UserError, match=r"^loaders: expected one for each task .*; missing: b$"):
        Streams(policy, {"a": []}, seed=1)
    empty = Streams(policy, {"a": [], "b": []}, seed=1)
    with pytest.raises(UserError, match=r"^loaders, [ab]: expected batches, found none in epoch 0"):
        next(iter(empty))
    streams = Streams(taskmix.Random(["a", "b"]), {"a": [1], "b": [1]}, seed=1)
    next(iter(streams))
    with pytest.raises(UserError, match=r"expected every draw to be settled, found 1 open$"):
        streams.state_dict()
