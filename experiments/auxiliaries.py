"""A primary task and auxiliaries of which one knows whether they help: a test bed for AutoSeM.

All tasks read vectors of normal numbers. Two hidden directions span a plane; the primary asks in
which half of it a vector falls, and has few examples. `shared` asks in which of eight sectors, and
has many. `permuted` has that question on the primary's own examples, with its answers shuffled.
`unrelated` reads coordinates that are zero for all others, and asks for the sign of a direction.

So, mixed one to one with the primary, `shared` helps much, `unrelated` neither helps nor hurts, and
`permuted` hurts.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from taskmix.rng import seed_for, stream
from taskmix.tasks.batches import Batch
from taskmix.tasks.data import from_data
from taskmix.tasks.task import Task

PRIMARY = "primary"
AUXILIARIES = ("shared", "permuted", "unrelated")
INPUTS = 60
CLASSES = {"primary": 2, "shared": 8, "permuted": 8, "unrelated": 2}
WIDTH = 128
BOTTLENECK = 16
OWN = 10
"""How many of the inputs only the unrelated task reads."""


@dataclass(frozen=True)
class Sizes:
    """How many examples there are.

    Args:
        primary: training examples of the primary, and of `permuted`.
        auxiliary: those of `shared` and `unrelated`.
        dev: of each task.
    """

    primary: int = 48
    auxiliary: int = 2000
    dev: int = 1000


def auxiliary_tasks(seed: int, sizes: Sizes | None = None) -> list[Task]:
    """Return the primary and its three auxiliaries, the same ones for the same seed.

    Args:
        seed: of the hidden features and all examples.
        sizes: how many examples.

    >>> [task.name for task in auxiliary_tasks(1)]
    ['primary', 'shared', 'permuted', 'unrelated']
    """
    sizes = sizes or Sizes()
    return [_task(name, seed, sizes) for name in (PRIMARY, *AUXILIARIES)]


def _task(name: str, seed: int, sizes: Sizes) -> Task:
    count = sizes.primary if name in (PRIMARY, "permuted") else sizes.auxiliary
    return from_data(
        name,
        train=_examples(name, "train", seed, count),
        dev=_examples(name, "dev", seed, sizes.dev),
        loss=cross_entropy,
        score=accuracy,
    )


def _examples(name: str, split: str, seed: int, count: int) -> torch.utils.data.TensorDataset:
    drawn_for = PRIMARY if name == "permuted" else name
    inputs = stream(seed, "auxiliaries", drawn_for, split).standard_normal((count, INPUTS))
    unread = slice(None, -OWN) if name == "unrelated" else slice(-OWN, None)
    inputs[:, unread] = 0
    labels = _labels(name, inputs, seed)
    if name == "permuted":
        labels = stream(seed, "permutation", split).permutation(labels)
    return torch.utils.data.TensorDataset(
        torch.from_numpy(inputs).float(), torch.from_numpy(labels)
    )


def _labels(name: str, inputs: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """Return on which side of a hidden direction, or in which sector of a plane, inputs are."""
    if name == "unrelated":
        side = inputs @ stream(seed, "direction").standard_normal(INPUTS)
        return np.asarray(side > 0, dtype=np.int64)
    features = inputs @ stream(seed, "features").standard_normal((INPUTS, 2))
    turn = stream(seed, "turn").uniform(0, 2 * np.pi)
    angle = (np.arctan2(features[:, 1], features[:, 0]) + turn) % (2 * np.pi)
    return np.asarray(angle / (2 * np.pi) * CLASSES[name], dtype=np.int64)


def cross_entropy(outputs: Tensor, batch: Any) -> Tensor:
    return functional.cross_entropy(outputs, batch[1])


def accuracy(outputs: Any, batch: Any) -> float:
    """Return the share of right answers."""
    return float((outputs.argmax(1) == batch[1]).mean())


class SharedNetwork(nn.Module):
    """Two hidden layers that all tasks share, and a linear head for each.

    Args:
        seed: of the first weights.
        width: of the first hidden layer.
    """

    def __init__(self, seed: int, width: int = WIDTH) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(seed, "network"))
            self.encoder = nn.Sequential(
                nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, BOTTLENECK), nn.Tanh()
            )
            heads = {name: nn.Linear(BOTTLENECK, classes) for name, classes in CLASSES.items()}
            self.heads = nn.ModuleDict(heads)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the logits of each task in the batch."""
        return {part.task: self.heads[part.task](self.encoder(part.columns[0])) for part in batch}


def network(seed: int) -> "partial[SharedNetwork]":
    """Return what makes the model of a run.

    Args:
        seed: of its first weights.
    """
    return partial(SharedNetwork, seed)
