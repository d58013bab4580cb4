"""Batches made in the background and brought to the device."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from taskmix.tasks.batches import (
    FROZEN_STATES,
    WHOLE,
    Batch,
    Cut,
    Indices,
    Items,
    ItemStream,
    Stream,
    in_order,
    make_batch,
    make_part,
)
from taskmix.tasks.data import LoaderStream, ReadyBatches
from taskmix.tasks.encoding import MASK
from taskmix.training.prepare import Prepared

PASS = 100
"""Tokens that a CPU computes in about the time that one more pass through the model costs."""
AHEAD = 64
"""Tasks that have a batch made ahead; those drawn longest ago give way."""


class Loader:
    """Serves the training batches of each task, and mixed ones of several.

    While the model works on a batch, the next one of the same task is made in the background. What
    is served does not depend on that: each task's batches come in their own order.

    Args:
        prepared: the tasks with their training items.
        size: items in a batch.
        seed: of the order.
        device: where batches go.
        tokens: about how many tokens a batch has instead; None counts items.
        cut: which part of each batch is served.
        even: whether all ranks have to get equally many pieces of a batch.
    """

    def __init__(
        self,
        prepared: Sequence[Prepared],
        size: int,
        seed: int,
        device: torch.device,
        tokens: int | None = None,
        cut: Cut = WHOLE,
        even: bool = False,
    ) -> None:
        self.streams: dict[str, Stream] = {
            entry.task.name: _stream(entry, size, seed, tokens, cut) for entry in prepared
        }
        self._device = device
        self._cut = cut
        self._even = even
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="taskmix-loader")
        self._ahead: dict[str, Future[Batch]] = {}

    def next(self, task: str) -> Batch:
        """Return the next batch of a task, on the device."""
        stream = self.streams[task]
        made = self._ahead.pop(task, None)
        batch = self._upcoming(stream) if made is None else made.result()
        stream.advance()
        if isinstance(stream, ItemStream):  # a loader draws from torch's one random state
            self._ahead[task] = self._maker.submit(self._upcoming, stream)
        if len(self._ahead) > AHEAD:
            self._ahead.pop(next(iter(self._ahead))).result()
        return to_device(batch, self._device)

    def _upcoming(self, stream: Stream) -> Batch:
        return pinned(stream.upcoming(), self._device)

    def of(self, chosen: Mapping[str, Indices]) -> Batch:
        """Return a batch of these training items of each task, on the device."""
        return to_device(make_part(self.items, chosen, self._cut), self._device)

    def pieces(self, batch: Batch, count: int) -> list[Batch]:
        """Cut a batch into at most so many of about equal size.

        On a CPU, items of several tasks that differ much in length pass in groups of like length
        too, where computing the padding would take longer than another pass.
        """
        own = sum(len(part.items) for part in batch)
        if self._even:
            places = np.array_split(
                np.arange(own), max(1, min(count, batch.examples // self._cut.ranks))
            )
        elif count > 1 and own > 1:
            places = np.array_split(np.arange(own), min(count, own))
        elif self._device.type == "cpu" and len(batch.parts) > 1 and MASK in batch.inputs:
            places = self._like_lengths(batch)
        else:
            return [batch]
        return [batch] if len(places) == 1 else [self._piece(batch, at) for at in places]

    def _like_lengths(self, batch: Batch) -> list[Indices]:
        if FROZEN_STATES in batch.inputs:  # what frozen layers gave would be computed again
            return [np.arange(sum(len(part.items) for part in batch))]
        lengths = [self.items[part.task].lengths()[part.items] for part in batch]
        return like_lengths(np.concatenate(lengths), PASS)

    def _piece(self, batch: Batch, places: Indices) -> Batch:
        """Return the items at these places of a batch; a part's share is divided among them."""
        owners = np.repeat(np.arange(len(batch.parts)), [len(part.items) for part in batch])
        items = np.concatenate([part.items for part in batch])
        chosen = {
            part.task: items[places][owners[places] == number] for number, part in enumerate(batch)
        }
        shares = {
            part.task: part.share * len(chosen[part.task]) / len(part.items) for part in batch
        }
        return to_device(make_batch(self.items, chosen), self._device).with_shares(shares)

    @property
    def items(self) -> dict[str, Items]:
        """By task, its training items, for those whose batches are cut from items."""
        streams = self.streams.items()
        return {name: each.items for name, each in streams if isinstance(each, ItemStream)}

    def replace(self, task: str, items: Items) -> None:
        """Serve a task from other items, such as the same ones with another column."""
        self._drop()
        stream = self.streams[task]
        assert isinstance(stream, ItemStream)
        stream.items = items

    def go_to(self, task: str, epoch: int, place: int) -> None:
        """Go to a place in a task's stream."""
        self._drop()
        self.streams[task].load_state_dict({"epoch": epoch, "place": place})

    def _drop(self) -> None:
        for made in self._ahead.values():
            made.result()
        self._ahead.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return by task the place in its stream."""
        return {name: stream.state_dict() for name, stream in self.streams.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the places of `state_dict`; a task that has none there stays at its start."""
        self._drop()
        for name, stream in self.streams.items():
            if name in state:
                stream.load_state_dict(state[name])

    def close(self) -> None:
        """End the background thread."""
        self._maker.shutdown(wait=True, cancel_futures=True)


def like_lengths(lengths: Indices, price: int) -> list[Indices]:
    """Cut items into groups of like length, so that padded tokens and passes cost least in all.

    Args:
        lengths: of the items, shape `(items,)`.
        price: what a group costs besides its padded tokens.

    >>> [group.tolist() for group in like_lengths(np.array([9, 90, 10, 80]), price=20)]
    [[1, 3], [2, 0]]
    >>> [group.tolist() for group in like_lengths(np.array([9, 90, 10, 80]), price=500)]
    [[1, 3, 2, 0]]
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order].tolist()
    costs, starts = (
        [0],
        [0],
    )  # of the longest items so far: the least cost, where the last group begins
    for end in range(1, len(ordered) + 1):
        options = [costs[start] + price + ordered[start] * (end - start) for start in range(end)]
        starts.append(min(range(end), key=options.__getitem__))
        costs.append(options[starts[-1]])
    groups, end = [], len(ordered)
    while end:
        groups.append(order[starts[end] : end])
        end = starts[end]
    return groups[::-1]


def _stream(entry: Prepared, size: int, seed: int, tokens: int | None, cut: Cut) -> Stream:
    if isinstance(entry.train, ReadyBatches):
        return LoaderStream(entry.task.name, entry.train, seed, cut)
    return ItemStream(entry.task.name, entry.train, size, seed, tokens, cut)


def dev_batches(
    task: str, items: Items | ReadyBatches, size: int, device: torch.device, cut: Cut = WHOLE
) -> Iterator[Batch]:
    """Yield each item once, on the device; the next batch is made in the background.

    Ranks take turns with whole batches; one that is only passed along does not count.
    """
    batches = (
        items.in_order(task, cut)
        if isinstance(items, ReadyBatches)
        else in_order(task, items, size, cut)
    )

    def following() -> Batch | None:
        batch = next(batches, None)
        return None if batch is None else pinned(batch, device)

    with ThreadPoolExecutor(1, thread_name_prefix="taskmix-dev") as maker:
        made = maker.submit(following)
        while (batch := made.result()) is not None:
            made = maker.submit(following)
            yield to_device(batch, device)


def pinned(batch: Batch, device: torch.device) -> Batch:
    """Return a batch as tensors, in memory that a GPU copies from without blocking."""
    tensors = batch.mapped(torch.as_tensor)
    return tensors.mapped(lambda tensor: tensor.pin_memory()) if device.type == "cuda" else tensors


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Return a batch as tensors on the device; copies from pinned memory do not block."""
    return batch.mapped(lambda array: torch.as_tensor(array).to(device, non_blocking=True))
