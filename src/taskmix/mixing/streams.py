"""Streams: data sets without items by number, mixed batch by batch."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.mixing.decisions import Decisions
from taskmix.mixing.mixed import marked
from taskmix.policies import Policy


class Streams(Decisions):
    """Batches of several loaders, each drawn at the moment it is wanted.

    For iterable data sets: each task has a loader of its own, with workers if it likes, and the
    policy is asked at `next()`, so no draw is ever made ahead. A loader that ends begins again
    (after `set_epoch` with the number of the epoch, if it or its data set has that).

    A loader that has `state_dict` and `load_state_dict` resumes by them, as exactly as they do it:
    `datasets` leaves its shuffle buffer out. Any other loader is expected to give the same batches
    again in an epoch of the same number; those it gave before are skipped, which is exact and slow.

    Args:
        policy: draws the tasks.
        loaders: by task, something that gives batches when it is iterated.
        seed: of the draws.
        sizes: by task, its training examples, for the journal; empty if nobody knows.
        journal: the file to write every draw to; it must not be there yet. None for no journal.

    >>> import taskmix
    >>> streams = Streams(taskmix.Random(["a", "b"]), {"a": [[1], [2]], "b": [[3]]}, seed=1)
    >>> for _, batch in zip(range(3), streams):
    ...     print(batch)
    ...     streams.settle(batch["draw"], loss=0.5)
    {'batch': [1], 'draw': 1, 'task': 'a'}
    {'batch': [3], 'draw': 2, 'task': 'b'}
    {'batch': [3], 'draw': 3, 'task': 'b'}
    """

    def __init__(
        self,
        policy: Policy,
        loaders: Mapping[str, Iterable[Any]],
        *,
        seed: int,
        sizes: Mapping[str, int] | None = None,
        journal: Path | str | None = None,
    ) -> None:
        if set(loaders) != set(policy.tasks):
            raise UserError(
                f"loaders: expected one for each task of the policy, {', '.join(policy.tasks)}, "
                f"found {', '.join(loaders) or 'none'}"
            )
        super().__init__(policy, sizes or {}, None, seed=seed, journal=journal)
        self._streams = {task: _Stream(task, loaders[task]) for task in policy.tasks}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield batches with their draw and task, without end."""
        while True:
            draw = self.ask()
            yield marked(self._streams[draw.task].next(), draw.number, draw.task)

    def state_dict(self) -> dict[str, Any]:
        """Return where the draws and the streams are; raise if a draw is not settled.

        A stream cannot be rewound, so a batch that was given out and not trained on would be lost.
        """
        if self.open:
            raise UserError(
                f"state of streams: expected every draw to be settled, found "
                f"{', '.join(map(str, self.open))} open"
            )
        streams = {task: each.state_dict() for task, each in self._streams.items()}
        return super().state_dict() | {"streams": streams}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(state)
        for task, each in self._streams.items():
            each.load_state_dict(state["streams"][task])


class _Stream:
    """The batches of one loader, without end."""

    def __init__(self, task: str, loader: Iterable[Any]) -> None:
        self._task = task
        self._loader = loader
        self._batches: Iterator[Any] | None = None
        self._epoch = 0
        self._taken = 0

    def next(self) -> Any:
        if self._batches is None:
            self._begin()
        try:
            batch = next(self._batches)  # type: ignore[arg-type] # _begin made it
        except StopIteration:
            if not self._taken:
                raise UserError(
                    f"loaders, {self._task}: expected batches, found none in epoch {self._epoch}"
                ) from None
            self._epoch, self._taken = self._epoch + 1, 0
            self._begin()
            return self.next()
        self._taken += 1
        return batch

    def _begin(self) -> None:
        for owner in (self._loader, getattr(self._loader, "dataset", None)):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(self._epoch)  # type: ignore[union-attr]
                break
        self._batches = iter(self._loader)

    def state_dict(self) -> dict[str, Any]:
        own = self._loader.state_dict() if hasattr(self._loader, "state_dict") else None
        return {"epoch": self._epoch, "taken": self._taken, "loader": own if self._taken else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._taken, self._batches = state["epoch"], state["taken"], None
        if not self._taken:
            return
        if state["loader"] is not None:
            self._loader.load_state_dict(state["loader"])  # type: ignore[attr-defined]
        self._begin()
        if state["loader"] is None:
            for _ in range(self._taken):
                next(self._batches)  # type: ignore[call-overload]
