"""The built-in tasks on images: two overlaid 8x8 digits of scikit-learn, as in MultiMNIST."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.files import hash_of
from taskmix.rng import stream
from taskmix.tasks.catalogue.entry import BuiltInEntry
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY
from taskmix.tasks.rows import ImageRow

Pixels = NDArray[np.uint8]
Question = Literal["left", "right", "larger"]

NUMERALS = tuple("0123456789")
CANVAS = 12
SHIFT = 3
SEED = 0
TRAIN_ROWS: dict[Question, int] = {"left": 1200, "right": 400, "larger": 150}
OTHER_ROWS = 400
IMAGES = {"train": (0, 1000), "dev": (1000, 1400), "test": (1400, 1797)}
"""The range of each split in the shuffled images; no image is in two splits."""


@dataclass(frozen=True)
class DigitsSource:
    """Overlaid digits of one split."""

    question: Question  # `left` or `right` asks for that digit, `larger` for the side of the larger
    split: str

    @property
    def where(self) -> str:
        return f"digits/{self.question}, {self.split}"

    def rows(self) -> Iterator[ImageRow]:
        pixels, labels = self._arrays()
        for at, (picture, label) in enumerate(zip(pixels, labels, strict=True), start=1):
            yield ImageRow(at, picture, label)

    def skips(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        pixels, labels = self._arrays()
        return hash_of(pixels.tobytes() + repr(labels).encode())

    def _arrays(self) -> tuple[Pixels, list[str]]:
        images, numerals = _images(self.split)
        rng = stream(SEED, "digits", self.question, self.split)
        count = TRAIN_ROWS[self.question] if self.split == "train" else OTHER_ROWS
        left, right = rng.integers(len(images), size=(2, count))
        if self.question == "larger":
            right = _unequal(left, right, numerals, rng)
            labels = np.where(numerals[left] > numerals[right], "left", "right").tolist()
        else:
            labelled = left if self.question == "left" else right
            labels = [str(numeral) for numeral in numerals[labelled]]
        return overlay(images[left], images[right], SHIFT, CANVAS), labels


def _images(split: str) -> tuple[Pixels, NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    loaded = load_digits()
    order = stream(SEED, "digits", "images").permutation(len(loaded.images))
    chosen = order[slice(*IMAGES[split])]
    brightness = np.round(loaded.images[chosen] * (255 / 16)).astype(np.uint8)
    return brightness, loaded.target[chosen].astype(np.int64)


def _unequal(
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    numerals: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the right digit again as long as it equals the left one."""
    while (equal := numerals[left] == numerals[right]).any():
        right = np.where(equal, rng.integers(len(numerals), size=len(right)), right)
    return right


def overlay(left: Pixels, right: Pixels, shift: int, canvas: int) -> Pixels:
    """Return the pixelwise maximum of images at the top left and images moved down and right.

    Images have shape `(images, size, size)`, the result `(images, canvas, canvas)`.
    """
    count, size, _ = left.shape
    images = np.zeros((count, canvas, canvas), dtype=np.uint8)
    images[:, :size, :size] = left
    moved = images[:, shift : shift + size, shift : shift + size]
    np.maximum(moved, right, out=moved)
    return images


def _entry(question: Question) -> BuiltInEntry:
    kind = Classify(("left", "right") if question == "larger" else NUMERALS)
    splits = {split: DigitsSource(question, split) for split in IMAGES}
    return BuiltInEntry(f"digits/{question}", kind, (ACCURACY,), splits)


DIGITS = tuple(map(_entry, TRAIN_ROWS))
