"""A policy as a batch sampler."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from taskmix.config import PolicySpec
from taskmix.errors import OtherDistributionError, UserError, unknown
from taskmix.mixing.decisions import Decisions, check_names, policy_over
from taskmix.mixing.orders import BatchOrder, ItemOrder
from taskmix.policies import Draw, Policy


class Key(NamedTuple):
    """The key of an item in a `Mixed` data set."""

    draw: int
    task: str
    item: int


class Mixer(Decisions):
    """An infinite batch sampler that asks a policy for the task of each batch.

    It yields batches of keys for a `Mixed` data set, and is iterated in the main process even if a
    loader has workers. Draws that a loader prefetched stay open until they are settled; they are
    part of the state and repeated after a resume.

    Args:
        policy: draws the tasks; or its name, such as "aimed", or a mapping of its name and options
            as in a run file, such as `{"name": "exp3s", "eta": 0.01}`.
        sizes: by task, the number of examples.
        batch: examples in a batch.
        seed: the seed of the draws and of the order of the examples.
        lengths: by task, the length of each example, shape `(examples,)`, to batch examples of
            similar length; a task without lengths is only shuffled.
        journal: a new file to write every draw to; None for no journal.
        lag: draw n uses only the outcomes of the draws up to n - lag, so the draws are the same for
            any number of workers. It must be larger than the number of draws that the loader
            prefetches. None: a draw uses all outcomes settled before it.
        batches: the number of batches of each draw, for example the micro-batches of a step on all
            ranks.
        orders: by task, the order of its batches; shuffled if None.
        steps: the number of draws in the training, for a policy that is given by its name: `aimed`
            computes the epochs of each task from it. If None, one epoch of all tasks.

    >>> import taskmix
    >>> mixer = Mixer(taskmix.Random(["a", "b"]), {"a": 6, "b": 4}, batch=2, seed=2)
    >>> batches = iter(mixer)
    >>> next(batches)
    [Key(draw=1, task='b', item=0), Key(draw=1, task='b', item=3)]
    >>> mixer.settle(1, loss=0.7)
    >>> mixer.shares()
    {'a': 0.0, 'b': 1.0}
    """

    # With a number here, accelerate drops groups of batches if one has another size.
    batch_size: None = None

    def __init__(
        self,
        policy: PolicySpec,
        sizes: Mapping[str, int],
        batch: int,
        *,
        seed: int,
        lengths: Mapping[str, ArrayLike] | None = None,
        journal: Path | str | None = None,
        lag: int | None = None,
        batches: int = 1,
        orders: Mapping[str, BatchOrder] | None = None,
        steps: int | None = None,
    ) -> None:
        _check(sizes, batch, batches, lengths or {})
        self.steps = None if isinstance(policy, Policy) else steps
        policy = policy_over(policy, sizes, batch * batches, steps)
        check_names("sizes", sizes, policy.tasks)
        sizes = {task: int(sizes[task]) for task in policy.tasks}
        super().__init__(policy, sizes, batch, seed=seed, journal=journal, lag=lag)
        self.orders: Mapping[str, BatchOrder] = orders or {
            task: ItemOrder(task, size, batch, seed, (lengths or {}).get(task))
            for task, size in sizes.items()
        }
        self.batches = batches
        self._items: dict[int, list[list[int]]] = {}
        self._blanks = 0

    def __iter__(self) -> Iterator[list[Key]]:
        """Yield the batches of the open draws, then those of new ones."""
        blanks, self._blanks = self._blanks, 0
        yield from ([] for _ in range(blanks))
        for number in self._numbers():
            yield from self._keys(number)

    def _numbers(self) -> Iterator[int]:
        """Yield the open draws, then new ones, with their items in `self._items`."""
        yield from list(self.open)
        while True:
            draw = self.ask()
            order = self.orders[draw.task]
            self._items[draw.number] = [order.next() for _ in range(self.batches)]
            yield draw.number

    def _keys(self, number: int) -> Iterator[list[Key]]:
        task = self.open[number].task
        for items in self._items[number]:
            yield [Key(number, task, item) for item in items]

    def skip(self, batches: int) -> None:
        """Begin the next iteration with this many empty batches.

        For a trainer that resumes by discarding the batches before the checkpoint, so that the
        policy is not asked for them again.
        """
        self._blanks = batches

    def _close(self, draw: Draw) -> int | None:
        super()._close(draw)
        return sum(map(len, self._items.pop(draw.number)))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "items": {str(number): self._items[number] for number in self.open},
            "orders": {task: order.state_dict() for task, order in self.orders.items()},
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            super().load_state_dict(state)
        except OtherDistributionError:
            saved = state.get("steps")
            if saved == self.steps:
                raise
            raise UserError(
                f"policy {self.policy.name}: its shares depend on the number of draws: expected"
                f" {saved}, as in the training that was saved, found {self.steps}; keep the number"
                " of steps, or start a new training"
            ) from None
        self._items = {int(number): items for number, items in state["items"].items()}
        for task, order in self.orders.items():
            order.load_state_dict(state["orders"][task])

    def _settings(self) -> dict[str, Any]:
        orders = {f"data set {task}": order.settings() for task, order in self.orders.items()}
        return super()._settings() | {"batches": self.batches} | orders


class Shard:
    """The batches of a mixer for one rank: every `ranks`-th.

    Each rank has its own mixer. All make the same draws if all settle them with the same outcomes,
    as `Tally` does.

    Args:
        mixer: the mixer of this rank.
        rank: the rank of this process, from 0.
        ranks: the number of processes.
    """

    batch_size: None = None

    def __init__(self, mixer: Mixer, rank: int, ranks: int) -> None:
        if not 0 <= rank < ranks:
            raise UserError(f"rank: expected a number from 0 to {ranks - 1}, found {rank}")
        self.mixer = mixer
        self.rank = rank
        self.ranks = ranks

    def __iter__(self) -> Iterator[list[Key]]:
        batches = iter(self.mixer)
        # The mixer never ends, so neither do its groups of `ranks` batches.
        for group in zip(*[batches] * self.ranks, strict=False):
            yield group[self.rank]


def _check(
    sizes: Mapping[str, int],
    batch: int,
    batches: int,
    lengths: Mapping[str, ArrayLike],
) -> None:
    for task, size in sizes.items():
        if size < 1:
            raise UserError(f"sizes, {task}: expected at least 1 example, found {size}")
    for name, value in (("batch", batch), ("batches", batches)):
        if value < 1:
            raise UserError(f"{name}: expected at least 1, found {value}")
    for task in lengths:
        if task not in sizes:
            raise unknown("task", task, sizes, "lengths")
