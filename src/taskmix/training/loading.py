"""Batches, made in a background thread and copied to the device."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from taskmix.config.schema import Budget
from taskmix.errors import UserError
from taskmix.tasks.batches import (
    FROZEN_STATES,
    NOT_CUT,
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

TOKENS_PER_PASS = 100  # about as many tokens cost a CPU as much time as one more pass does
MAX_AHEAD = 64  # tasks with a batch made ahead; those drawn longest ago give way


class Loader:
    """Serves the training batches of each task, and mixed batches of several tasks."""

    def __init__(
        self,
        prepared: Sequence[Prepared],
        budget: Budget,
        seed: int,
        device: torch.device,
        cut: Cut = NOT_CUT,
        even: bool = False,
    ) -> None:
        self.streams: dict[str, Stream] = {}
        for entry in prepared:
            name, items = entry.task.name, entry.train
            self.streams[name] = (
                LoaderStream(name, items, seed, cut)
                if isinstance(items, ReadyBatches)
                else ItemStream(name, items, budget.batch, seed, budget.tokens, cut)
            )
        self._device = device
        self._cut = cut
        self._accumulate = budget.accumulate
        self._even = even  # all ranks must have equally many pieces of a batch
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="taskmix-loader")
        self._ahead: dict[str, Future[Batch]] = {}

    def next(self, task: str) -> Batch:
        stream = self.streams[task]
        made = self._ahead.pop(task, None)
        batch = self._upcoming(stream) if made is None else made.result()
        stream.advance()
        # A background thread makes the next batch of the task; a user's loader is not called
        # there, since it draws from torch's global random state.
        if isinstance(stream, ItemStream):
            self._ahead[task] = self._maker.submit(self._upcoming, stream)
        if len(self._ahead) > MAX_AHEAD:
            self._ahead.pop(next(iter(self._ahead))).result()
        return to_device(batch, self._device)

    def _upcoming(self, stream: Stream) -> Batch:
        return pinned(self._in_pieces(stream.upcoming()), self._device)

    def of(
        self, chosen: Mapping[str, Indices], states: Sequence[NDArray[np.float32]] | None = None
    ) -> Batch:
        """Return a batch of these training items, with the outputs of frozen layers if given."""
        batch = make_part(self.items, chosen, self._cut)
        if states is not None:
            padded = _padded(states, batch.inputs[MASK].shape[1])
            batch = replace(batch, inputs=batch.inputs | {FROZEN_STATES: padded})
        return to_device(self._in_pieces(batch), self._device)

    def _in_pieces(self, batch: Batch) -> Batch:
        """Return a batch with the pieces, of about equal size, in which it passes the model."""
        count, size = self._accumulate, sum(len(part.items) for part in batch)
        # Pieces would compute the frozen states again.
        padded = MASK in batch.inputs and FROZEN_STATES not in batch.inputs
        if self._even:
            pieces = max(1, min(count, batch.examples // self._cut.ranks))
            places = np.array_split(np.arange(size), pieces)
        elif count > 1 and size > 1:
            places = np.array_split(np.arange(size), min(count, size))
        elif self._device.type == "cpu" and len(batch.parts) > 1 and padded:
            lengths = [self.items[part.task].lengths()[part.items] for part in batch]
            places = similar_lengths(np.concatenate(lengths), TOKENS_PER_PASS)
        else:
            return batch
        if len(places) == 1:
            return batch
        return replace(batch, pieces=tuple(self._piece(batch, at) for at in places))

    def _piece(self, batch: Batch, places: Indices) -> Batch:
        """Return the items at some places of a batch; they divide each part's share."""
        owners = np.repeat(np.arange(len(batch.parts)), [len(part.items) for part in batch])
        items = np.concatenate([part.items for part in batch])
        chosen = {
            part.task: items[places][owners[places] == number] for number, part in enumerate(batch)
        }
        shares = {
            part.task: part.share * len(chosen[part.task]) / len(part.items) for part in batch
        }
        return make_batch(self.items, chosen).with_shares(shares)

    @property
    def items(self) -> dict[str, Items]:
        """The training items of each task whose batches are made from items."""
        return {n: s.items for n, s in self.streams.items() if isinstance(s, ItemStream)}

    def replace(self, task: str, items: Items) -> None:
        """Serve a task from other items, such as the same ones with another column."""
        self._drop()
        stream = self.streams[task]
        assert isinstance(stream, ItemStream)
        stream.items = items

    def go_to(self, task: str, epoch: int, place: int) -> None:
        self._drop()
        self.streams[task].load_state_dict({"epoch": epoch, "place": place})

    def _drop(self) -> None:
        for made in self._ahead.values():
            made.result()
        self._ahead.clear()

    def state_dict(self) -> dict[str, Any]:
        return {name: stream.state_dict() for name, stream in self.streams.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; a task that it lacks stays at its start."""
        self._drop()
        for name, stream in self.streams.items():
            if name in state:
                stream.load_state_dict(state[name])

    def close(self) -> None:
        self._maker.shutdown(wait=True, cancel_futures=True)


def similar_lengths(lengths: Indices, price: int) -> list[Indices]:
    """Return groups of similar length for which padded tokens plus `price` a group cost least.

    >>> [group.tolist() for group in similar_lengths(np.array([9, 90, 10, 80]), price=20)]
    [[1, 3], [2, 0]]
    >>> [group.tolist() for group in similar_lengths(np.array([9, 90, 10, 80]), price=500)]
    [[1, 3, 2, 0]]
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order].tolist()
    # Of the longest items up to each: the least cost, and where the last group begins.
    costs, starts = [0], [0]
    for end in range(1, len(ordered) + 1):
        options = [costs[start] + price + ordered[start] * (end - start) for start in range(end)]
        starts.append(min(range(end), key=options.__getitem__))
        costs.append(options[starts[-1]])
    groups, end = [], len(ordered)
    while end:
        groups.append(order[starts[end] : end])
        end = starts[end]
    return groups[::-1]


def _padded(rows: Sequence[NDArray[np.float32]], tokens: int) -> NDArray[np.float32]:
    """Stack rows of different lengths, padded or cut to this many tokens."""
    stacked = np.zeros((len(rows), tokens, rows[0].shape[1]), dtype=np.float32)
    for place, row in enumerate(rows):
        length = min(tokens, len(row))
        stacked[place, :length] = row[:length]
    return stacked


def dev_batches(
    task: str, items: Items | ReadyBatches, size: int, device: torch.device, cut: Cut = NOT_CUT
) -> Iterator[Batch]:
    """Yield each item once, on the device; a background thread makes the next batch."""
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
    """Return a batch as tensors, in pinned memory if they go to a GPU."""
    tensors = batch.mapped(torch.as_tensor)
    return tensors.mapped(lambda tensor: tensor.pin_memory()) if device.type == "cuda" else tensors


def to_device(batch: Batch, device: torch.device) -> Batch:
    return batch.mapped(lambda array: torch.as_tensor(array).to(device, non_blocking=True))


def pick_device(name: str) -> torch.device:
    """Return the device that a run file names; `auto` is the fastest available one."""
    if name != "auto":
        try:
            torch.zeros(1, device=name).cpu()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            why = str(error).splitlines()[0]
            raise UserError(
                f"device: expected auto or a device here, found {name!r}: {why}"
            ) from None
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def wants_bfloat16(precision: str, device: torch.device) -> bool:
    """Return whether to use mixed precision; `auto` uses it on a GPU that supports it."""
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return precision == "bfloat16"
