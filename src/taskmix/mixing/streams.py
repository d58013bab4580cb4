"""Iterable data sets, mixed batch by batch."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from taskmix.config import PolicySpec
from taskmix.errors import UserError
from taskmix.mixing.decisions import Decisions, check_names, policy_over
from taskmix.mixing.mixed import marked
from taskmix.tasks.batches import Cursor


class Streams(Decisions):
    """Batches of several loaders of iterable data sets, one loader for each task.

    The policy is asked at `next()`, so no draw is made ahead. A loader that ends is iterated again,
    after `set_epoch(epoch)` if it or its data set has that method.

    A loader with `state_dict` and `load_state_dict` is resumed with them, which may not be exact:
    `datasets` does not save its shuffle buffer. Any other loader must yield the same batches each
    time an epoch is iterated; a resume skips those before the checkpoint, which is exact but slow.

    Args:
        policy: draws the tasks; or its name, or a mapping of its name and options, with `sizes`.
        loaders: by task, an iterable of batches.
        seed: the seed of the draws.
        sizes: by task, the number of training examples if known, for the journal and for a policy
            that is named.
        journal: a new file to write every draw to; None for no journal.

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
        policy: PolicySpec,
        loaders: Mapping[str, Iterable[Any]],
        *,
        seed: int,
        sizes: Mapping[str, int] | None = None,
        journal: Path | str | None = None,
    ) -> None:
        policy = policy_over(policy, sizes)
        check_names("loaders", loaders, policy.tasks)
        super().__init__(policy, sizes or {}, None, seed=seed, journal=journal)
        self._cursors = {task: _LoaderCursor(task, loaders[task]) for task in policy.tasks}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield batches with their draw and task, infinitely."""
        while True:
            draw = self.ask()
            yield marked(self._cursors[draw.task].next(), draw.number, draw.task)

    def state_dict(self) -> dict[str, Any]:
        if self.open:  # a stream cannot be rewound, so the batches of these draws would be lost
            raise UserError(
                f"state of streams: expected every draw to be settled, found "
                f"{', '.join(map(str, self.open))} open"
            )
        streams = {task: cursor.state_dict() for task, cursor in self._cursors.items()}
        return super().state_dict() | {"streams": streams}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for task, cursor in self._cursors.items():
            cursor.load_state_dict(state["streams"][task])


class _LoaderCursor(Cursor[Any]):
    def __init__(self, task: str, loader: Iterable[Any]) -> None:
        super().__init__(f"loaders, {task}")
        self._loader = loader
        # Workers of torchdata's loader that had reached the end of their part of this epoch when
        # it was resumed.
        self._ended: frozenset[int] = frozenset()
        _check_workers(self.where, loader)

    def batches_from(self, epoch: int, place: int) -> Iterator[Any]:
        self._ended = frozenset()
        return islice(self._begin(epoch), place, None)

    def _begin(self, epoch: int) -> Iterator[Any]:
        for owner in (self._loader, getattr(self._loader, "dataset", None)):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)  # type: ignore[union-attr]
                break
        return iter(self._loader)

    def state_dict(self) -> dict[str, Any]:
        begun = self._loader.state_dict() if hasattr(self._loader, "state_dict") else None
        loader = begun if self._place else None
        return super().state_dict() | {"loader": loader, "ended": sorted(self._ended)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # Version 0.1 called the place "taken".
        super().load_state_dict({"place": state.get("taken"), **state})
        if state["loader"] is None:
            return
        self._ended = frozenset(state.get("ended", ())) | _ended_workers(state["loader"])
        with self._errors_of_states():
            self._loader.load_state_dict(state["loader"])  # type: ignore[attr-defined]
            # A loader with a state continues at its place as soon as it is iterated.
            batches = self._begin(self._epoch)
        self._open = self._epoch, self._place, self._resumed(batches)

    def _resumed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches, but none of workers that had ended before the checkpoint.

        torchdata asks these for one more batch, and a data set that begins again at its end
        answers with a batch that was yielded before.
        """
        while True:
            try:
                with self._errors_of_states():
                    batch = next(batches)
            except StopIteration:
                return
            if not self._ended or batches._last_yielded_worker_id not in self._ended:  # type: ignore[attr-defined]
                yield batch

    @contextmanager
    def _errors_of_states(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            raise UserError(
                f"{self.where}: expected a loader that goes on from its state, found one that "
                f"does not: {error}; with num_workers=0 it has no state of workers"
            ) from None


def _check_workers(where: str, loader: Any) -> None:
    """Refuse options of a loader with workers after which a resume would not be exact."""
    if not getattr(loader, "num_workers", 0):
        return
    for option, expected in (("in_order", True), ("snapshot_every_n_steps", 1)):
        if (value := getattr(loader, option, expected)) != expected:
            raise UserError(
                f"{where}: expected {option}={expected}, without which a resume of its workers is "
                f"not exact, found {value}"
            )
    if getattr(loader, "persistent_workers", False) and not _shares_its_epoch(loader.dataset):
        raise UserError(
            f"{where}: expected persistent_workers=False, because set_epoch of the data set does "
            f"not reach workers that persist, found True"
        )


def _shares_its_epoch(dataset: Any) -> bool:
    """Whether every worker sees a `set_epoch` in this process, as with those of `datasets`."""
    values = vars(dataset).values() if hasattr(dataset, "set_epoch") else None
    return values is None or any(hasattr(v, "is_shared") and v.is_shared() for v in values)


def _ended_workers(state: Any) -> frozenset[int]:
    """Return the workers that had ended in a state of torchdata's loader; none of another state."""
    snapshot = state.get("_snapshot") if isinstance(state, Mapping) else None
    workers = snapshot.get("_worker_snapshots", {}) if isinstance(snapshot, Mapping) else {}
    return frozenset(
        worker["worker_id"]
        for worker in workers.values()
        if (worker["fetcher_state"] or {}).get("fetcher_ended")
    )
