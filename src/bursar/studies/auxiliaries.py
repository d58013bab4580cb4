"""A primary task and auxiliaries of which one knows whether they help: a test bed for AutoSeM.

All tasks read vectors of the same kind. The primary asks on which side of a boundary a few hidden
features lie, and has few examples. `shared` asks the same features another question; `permuted` has
the primary's own question with its answers shuffled; `unrelated` asks about other features.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bursar.rng import seed_for, stream
from bursar.tasks.batches import Batch
from bursar.tasks.data import from_data
from bursar.tasks.task import Task

PRIMARY = "primary"
AUXILIARIES = ("shared", "permuted", "unrelated")
INPUTS = 60
FEATURES = 2
CLASSES = 2
BOTTLENECK = 4
TURN = 0.5


@dataclass(frozen=True)
class Sizes:
    """How many examples there are.

    Args:
        primary: training examples of the primary.
        auxiliary: those of each auxiliary.
        dev: of each task.
    """

    primary: int = 48
    auxiliary: int = 2000
    dev: int = 500


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
    count = sizes.primary if name == PRIMARY else sizes.auxiliary
    return from_data(
        name,
        train=_examples(name, "train", seed, count),
        dev=_examples(name, "dev", seed, sizes.dev),
        loss=_loss,
        score=accuracy,
    )


def _examples(name: str, split: str, seed: int, count: int) -> torch.utils.data.TensorDataset:
    # The permuted task has the primary's own pictures of the world, and wrong answers to them.
    own = PRIMARY if name == "permuted" else name
    inputs = stream(seed, "auxiliaries", own, split).standard_normal((count, INPUTS))
    labels = _labels(own, inputs, seed)
    if name == "permuted":
        labels = stream(seed, "permutation", split).permutation(labels)
    return torch.utils.data.TensorDataset(
        torch.from_numpy(inputs).float(), torch.from_numpy(labels)
    )


def _labels(name: str, inputs: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """Return on which side of the task's line the two hidden features of each input lie."""
    world = name if name == "unrelated" else PRIMARY
    features = inputs @ stream(seed, "features", world).standard_normal((INPUTS, FEATURES))
    angle = stream(seed, "line").uniform(0, 2 * np.pi) + (TURN if name == "shared" else 0.0)
    return np.asarray(features @ [np.cos(angle), np.sin(angle)] > 0, dtype=np.int64)


def _loss(outputs: Tensor, batch: Any) -> Tensor:
    return functional.cross_entropy(outputs, batch[1])


def accuracy(outputs: Any, batch: Any) -> float:
    """Return the share of right answers."""
    return float((outputs.argmax(1) == batch[1]).mean())


class SharedNetwork(nn.Module):
    """Two hidden layers that all tasks share, and a linear head for each.

    Args:
        seed: of the first weights.
        width: of the hidden layers.
    """

    def __init__(self, seed: int, width: int = 32) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(seed, "network"))
            self.encoder = nn.Sequential(
                nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, BOTTLENECK), nn.Tanh()
            )
            heads = {name: nn.Linear(BOTTLENECK, CLASSES) for name in (PRIMARY, *AUXILIARIES)}
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
