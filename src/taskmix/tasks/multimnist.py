"""MultiMNIST: two digits of MNIST on one canvas (Sabour et al. 2017; Sener and Koltun 2018)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.rng import stream
from taskmix.tasks.overlay import Pixels, overlay
from taskmix.tasks.readers.idx import read_idx
from taskmix.tasks.rows import ImageRow
from taskmix.tasks.sources import fingerprint

Side = Literal["left", "right"]

DIGIT = 28
SHIFT = 6
CANVAS = 36
DEV_ROWS = 10_000
PREFIXES = {"train": "train", "dev": "train", "test": "t10k"}
IMAGES = "{}-images-idx3-ubyte"
LABELS = "{}-labels-idx1-ubyte"


@dataclass(frozen=True)
class MultiMnistSource:
    """Overlaid digits of one split.

    Every image of MNIST is once the left digit, under a right one drawn from the same file (it may
    be itself); the canvas of 36 by 36 is brought back to 28 by 28 by nearest pixels. Of the 60,000
    training pairs, 10,000 drawn at random are the development set (Kourdis et al. 2020).

    Args:
        images: MNIST's file of images.
        labels: its file of labels.
        side: the digit that is asked for.
        split: train, dev or test.
        seed: of the pairs, and of which of them are the development set.
    """

    images: Path
    labels: Path
    side: Side
    split: str
    seed: int = 0

    @property
    def where(self) -> str:
        """What a complaint calls it."""
        return str(self.images)

    def rows(self) -> Iterator[ImageRow]:
        """Yield the rows in order; `at` is the left image's number in its file."""
        images, labels = self._mnist()
        right = stream(self.seed, "multimnist", PREFIXES[self.split]).integers(
            len(images), size=len(images)
        )
        asked = labels if self.side == "left" else labels[right]
        for left in self._chosen(len(images)):
            picture = shrunk(overlay(images[left, None], images[right[left], None], SHIFT, CANVAS))
            yield ImageRow(int(left) + 1, picture[0], str(asked[left]))

    def skips(self) -> dict[str, int]:
        """No rule passes over a row."""
        return {}

    def fingerprint(self) -> str:
        """Names the files' content, and the pairs."""
        return fingerprint((self.side, self.split, self.seed), self.images, self.labels)

    def _mnist(self) -> tuple[Pixels, Pixels]:
        images, labels = read_idx(self.images, 3), read_idx(self.labels, 1)
        if images.shape[1:] != (DIGIT, DIGIT):
            raise UserError(f"{self.images}: images of {images.shape[1:]}, expected 28 by 28.")
        if len(images) != len(labels) or not len(labels):
            raise UserError(f"{self.images}: {len(images)} images, but {len(labels)} labels.")
        return images, labels

    def _chosen(self, count: int) -> NDArray[np.int64]:
        """Return the left images of this split, in their order in the file."""
        if self.split == "test":
            return np.arange(count)
        order = stream(self.seed, "multimnist", "dev").permutation(count)
        cut = min(DEV_ROWS, count // 6)
        return np.sort(order[:cut] if self.split == "dev" else order[cut:])


def shrunk(pictures: Pixels) -> Pixels:
    """Return the canvas at the size of a digit, each pixel the one at floor(j * 36 / 28).

    >>> shrunk(np.zeros((2, 36, 36), dtype=np.uint8)).shape
    (2, 28, 28)
    """
    places = np.arange(DIGIT) * CANVAS // DIGIT
    return pictures[:, places[:, None], places]
