"""Tasks on MNIST images that differ in how fast they are learned, and a network for all of them."""

import os
from functools import cache
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
    "holes": 3,
    "upper half": 10,
    "quadrant": 10,
    "shifted": 10,
    "shuffled": 10,
    "coin": 2,
    "even sum": 2,
    "lit pixels": 5,
}
TRAIN, DEV = 3000, 500
OTHER_TRAIN = {
    **dict.fromkeys(("random 10", "random 2"), 300),
    "holes": 6000,
    "shifted": 4000,
    "quadrant": 2000,
    "upper half": 1000,
    "coin": 4000,
    "lit pixels": 1000,
    "even sum": 6000,
    "shuffled": 2000,
}
"""The training images of the tasks that do not have `TRAIN`."""
HOLES = np.array([1, 0, 0, 0, 0, 0, 1, 0, 2, 1])  # in the shape of each digit
SIDE = 28
PIXELS, HIDDEN = SIDE * SIDE, 64
MAX_SHIFT = 6  # pixels


@cache
def image_tasks(names: tuple[str, ...]) -> list[Task]:
    """Return tasks by their names in `CLASSES`, with images of their own each."""
    folder = Path(os.environ["TASKMIX_DATA"]) / "mnist"
    images = read_idx(folder / "train-images-idx3-ubyte.gz", 3) / 255.0
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz", 1).astype(np.int64)
    return [_task(name, images, labels) for name in names]


def _task(name: str, images: NDArray[np.float64], labels: NDArray[np.int64]) -> Task:
    order = stream(0, "images", name).permutation(len(images))
    train = OTHER_TRAIN.get(name, TRAIN)
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
        case "random 10" | "random 2" | "coin":
            answers = rng.integers(CLASSES[name], size=len(part))
        case "holes":
            answers = HOLES[answers]
        case "upper half":
            inputs = inputs.copy()
            inputs[:, SIDE // 2 :] = 0.0
        case "quadrant":
            corners = rng.integers(2, size=(len(part), 2)) * (SIDE // 2)
            halved = inputs.reshape(-1, SIDE // 2, 2, SIDE // 2, 2).mean(axis=(2, 4))
            padded = np.pad(halved, ((0, 0), (0, SIDE // 2), (0, SIDE // 2)))
            inputs = _rolled(padded, corners)
        case "shifted":
            inputs = _rolled(inputs, rng.integers(-MAX_SHIFT, MAX_SHIFT + 1, size=(len(part), 2)))
        case "shuffled":
            answers = rng.permutation(answers)
        case "even sum":
            others = stream(0, "others", str(part[0])).permutation(part)
            inputs = np.maximum(inputs, images[others])
            answers = (answers + labels[others] + 1) % 2
        case "lit pixels":
            answers = (inputs > 0.5).sum(axis=(1, 2)) % CLASSES[name]
    flat = torch.from_numpy(inputs.reshape(len(part), PIXELS).copy()).float()
    return TensorDataset(flat, torch.from_numpy(answers))


def _rolled(images: NDArray[np.float64], shifts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each image moved down and right by its shift, around the edges."""
    pairs = zip(images, shifts.tolist(), strict=True)
    return np.stack([np.roll(image, shift, axis=(0, 1)) for image, shift in pairs])


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
