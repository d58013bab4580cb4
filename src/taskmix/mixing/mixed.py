"""Several data sets as one, and how their items become batches."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from taskmix.errors import UserError, unknown
from taskmix.mixing.mixer import Key

Collator = Callable[[list[Any]], Any]


class Item(NamedTuple):
    """An example with its task and draw."""

    draw: int
    task: str
    value: Any

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):  # the default collator of a loader makes one Item of a batch
            raise UserError(
                f"batch[{key!r}]: expected a batch of collate_by, found one of another collator; "
                "give the loader collate_fn=collate_by()"
            )
        return tuple.__getitem__(self, key)


class Mixed:
    """Map-style data sets by name, as one data set with the keys of a `Mixer`.

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
        """The number of examples of each task."""
        return {task: len(dataset) for task, dataset in self.datasets.items()}

    def __len__(self) -> int:
        return sum(self.sizes.values())

    def __getitem__(self, key: Key) -> Item:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[Key]) -> list[Item]:
        if not keys:
            return []
        if not isinstance(keys[0], Key):
            raise UserError(
                f"datasets: expected keys of a Mixer, found {keys[0]!r:.80}; give the loader "
                "batch_sampler=mixer, and no sampler, shuffle or batch_size"
            )
        draw, task = keys[0].draw, keys[0].task
        if task not in self.datasets:
            raise unknown("task", task, self.datasets, f"draw {draw}")
        dataset, indices = self.datasets[task], [key.item for key in keys]
        # datasets.Dataset reads a whole batch in the time of a few items.
        read = getattr(dataset, "__getitems__", None)
        values = read(indices) if read else [dataset[index] for index in indices]
        return [Item(draw, task, value) for value in values]


def collate_by(
    collators: Mapping[str, Collator] | Collator | None = None,
) -> Callable[[Sequence[Item]], dict[str, Any]]:
    """Return a collator for batches of a `Mixed` data set.

    It returns the batch of the task's collator as a dictionary, with the number of the draw as
    `"draw"` and the name of the task as `"task"`. A batch that is no mapping is under `"batch"`.

    Args:
        collators: by task, or one for all; torch's `default_collate` if None.

    >>> collate_by(sum)([Item(7, "a", 1), Item(7, "a", 2)])
    {'batch': 3, 'draw': 7, 'task': 'a'}
    """
    if collators is None:
        from torch.utils.data import default_collate

        collators = default_collate
    return partial(_collate, collators)  # not a closure: spawned workers pickle it


def _collate(collators: Mapping[str, Collator] | Collator, items: Sequence[Item]) -> dict[str, Any]:
    draw, task = items[0].draw, items[0].task
    if isinstance(collators, Mapping):
        if task not in collators:
            raise unknown("task", task, collators, "collators")
        collators = collators[task]
    return marked(collators([item.value for item in items]), draw, task)


def marked(batch: Any, draw: int, task: str) -> dict[str, Any]:
    values = dict(batch) if isinstance(batch, Mapping) else {"batch": batch}
    return values | {"draw": draw, "task": task}
