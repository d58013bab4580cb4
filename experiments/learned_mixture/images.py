"""Tasks on MNIST images that differ in how fast they are learned, and a network for all of them."""

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from experiments.auxiliaries import accuracy, cross_entropy
from taskmix.rng import seed_for, stream
from taskmix.tasks.batches import Batch
from taskmix.tasks.catalogue.multimnist import read_idx
from taskmix.tasks.data import from_data
from taskmix.tasks.task import Task

CLASSES = {
    "digit": 10,
    "parity": 2,
    "large": 2,
    "rotated": 10,
    "permuted": 10,
    "sum": 10,
    "random 10": 10,
    "random 2": 2,
}
TRAIN, RANDOM_TRAIN, DEV = 3000, 300, 500
PIXELS, HIDDEN = 28 * 28, 64


def image_tasks(names: tuple[str, ...]) -> list[Task]:
    """Return tasks by their names in `CLASSES`, with images of their own each."""
    folder = Path(os.environ["TASKMIX_DATA"]) / "mnist"
    images = read_idx(folder / "train-images-idx3-ubyte.gz", 3) / 255.0
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz", 1).astype(np.int64)
    return [_task(name, images, labels) for name in names]


def _task(name: str, images: NDArray[np.float64], labels: NDArray[np.int64]) -> Task:
    order = stream(0, "images", name).permutation(len(images))
    train = RANDOM_TRAIN if name.startswith("random") else TRAIN
    examples = [_examples(name, images, labels, part) for part in (order[:train], order[-DEV:])]
    return from_data(name, train=examples[0], dev=examples[1], loss=cross_entropy, score=accuracy)


def _examples(
    name: str, images: NDArray[np.float64], labels: NDArray[np.int64], part: NDArray[np.int64]
) -> TensorDataset:
    inputs, answers = images[part], labels[part]
    rng = stream(0, "examples", name)
    match name:
        case "parity":
            answers = answers % 2
        case "large":
            answers = (answers >= 5).astype(np.int64)
        case "rotated":
            inputs = np.rot90(inputs, axes=(1, 2))
        case "permuted":
            order = rng.permutation(PIXELS)
            inputs = inputs.reshape(len(part), PIXELS)[:, order]
        case "sum":
            others = stream(0, "others", str(part[0])).permutation(part)
            inputs, answers = np.maximum(inputs, images[others]), (answers + labels[others]) % 10
        case "random 10" | "random 2":
            answers = rng.integers(CLASSES[name], size=len(part))
    flat = torch.from_numpy(inputs.reshape(len(part), PIXELS).copy()).float()
    return TensorDataset(flat, torch.from_numpy(answers))


class ImageNetwork(nn.Module):
    """A hidden layer that all tasks share, and a linear head for each."""

    def __init__(self, seed: int, tasks: tuple[str, ...]) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(seed, "network"))
            self.hidden = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU())
            self.heads = nn.ModuleDict({name: nn.Linear(HIDDEN, CLASSES[name]) for name in tasks})

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {part.task: self.heads[part.task](self.hidden(part.columns[0])) for part in batch}
