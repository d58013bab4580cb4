"""Several data sets as one, and how their items become batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from taskmix.errors import UserError, unknown
from taskmix.mixing.mixer import Key

Collator = Callable[[list[Any]], Any]


class Item(NamedTuple):
    """An example on its way from a data set to its batch."""

    draw: int
    task: str
    value: Any


class Mixed:
    """Map-style data sets by name, as one data set whose keys are those of a `Mixer`.

    Args:
        datasets: by task, anything with a length and items by number.

    >>> mixed = Mixed({"a": ["x", "y"], "b": ["z"]})
    >>> mixed.sizes
    {'a': 2, 'b': 1}
    >>> mixed[Key(7, "a", 1)]
    Item(draw=7, task='a', value='y')
    """

    def __init__(self, datasets: Mapping[str, Any]) -> None:
        self.datasets = dict(datasets)
        for task, dataset in self.datasets.items():
            if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
                raise UserError(
                    f"datasets, {task}: expected one with a length and items by number, found "
                    f"{type(dataset).__name__}; a stream goes into taskmix.mixing.Streams"
                )

    @property
    def sizes(self) -> dict[str, int]:
        """Return how many examples each has."""
        return {task: len(dataset) for task, dataset in self.datasets.items()}

    def __len__(self) -> int:
        return sum(self.sizes.values())

    def __getitem__(self, key: Key) -> Item:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[Key]) -> list[Item]:
        """Return the items of a batch, read at once where the data set can do that."""
        if not keys:
            return []
        draw, task = keys[0].draw, keys[0].task
        if task not in self.datasets:
            raise unknown("task", task, self.datasets, f"draw {draw}")
        dataset, places = self.datasets[task], [key.item for key in keys]
        # datasets.Dataset reads a whole batch in the time of a few items.
        read = getattr(dataset, "__getitems__", None)
        values = read(places) if read else [dataset[place] for place in places]
        return [Item(draw, task, value) for value in values]


class _CollateBy:
    """A class and not a closure, so that workers that are spawned can have it."""

    def __init__(self, collators: Mapping[str, Collator] | Collator) -> None:
        self._collators = collators

    def __call__(self, items: Sequence[Item]) -> dict[str, Any]:
        draw, task = items[0].draw, items[0].task
        collated = self._collator(task)([item.value for item in items])
        return marked(collated, draw, task)

    def _collator(self, task: str) -> Collator:
        if not isinstance(self._collators, Mapping):
            return self._collators
        if task not in self._collators:
            raise unknown("task", task, self._collators, "collators")
        return self._collators[task]


def collate_by(
    collators: Mapping[str, Collator] | Collator | None = None,
) -> Callable[[Sequence[Item]], dict[str, Any]]:
    """Return a collator for batches of a `Mixed` data set.

    What it returns is a dictionary: what the task's collator made, and the draw's number under
    `"draw"` and the task's name under `"task"`. If that is no mapping it stands under `"batch"`.

    Args:
        collators: by task, or one for all; torch's own if None.

    >>> collate_by(sum)([Item(7, "a", 1), Item(7, "a", 2)])
    {'batch': 3, 'draw': 7, 'task': 'a'}
    """
    if collators is None:
        from torch.utils.data import default_collate

        collators = default_collate
    return _CollateBy(collators)


def marked(batch: Any, draw: int, task: str) -> dict[str, Any]:
    """Return a batch as a dictionary with the draw's number and the task's name."""
    values = dict(batch) if isinstance(batch, Mapping) else {"batch": batch}
    return values | {"draw": draw, "task": task}
