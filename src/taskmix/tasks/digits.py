"""The built-in suite: real 8x8 digits (scikit-learn's), two on a canvas, no download.

As in MultiMNIST (Sabour et al. 2017; Sener and Koltun 2018), one digit stands at the top left and
another over it, lower and further right; the tasks ask for the one, the other, and which of the two
is the larger. They have 1200, 400 and 150 training rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY
from taskmix.tasks.overlay import Pixels, overlay
from taskmix.tasks.rows import ImageRow
from taskmix.tasks.task import Task

Question = Literal["left", "right", "larger"]

NUMERALS = tuple("0123456789")
CANVAS = 12
SHIFT = 3
SEED = 0
TRAIN_ROWS: dict[Question, int] = {"left": 1200, "right": 400, "larger": 150}
OTHER_ROWS = 400
IMAGES = {"train": (0, 1000), "dev": (1000, 1400), "test": (1400, 1797)}
"""Which of the shuffled images a split is made from: no image is in two of them."""


@dataclass(frozen=True)
class DigitsSource:
    """Overlaid digits of one split, the same ones every time.

    Args:
        question: what is asked about a pair.
        split: train, dev or test.
    """

    question: Question
    split: str

    @property
    def where(self) -> str:
        """What a complaint calls it."""
        return f"digits/{self.question}, {self.split}"

    def rows(self) -> Iterator[ImageRow]:
        """Yield the rows in order."""
        pixels, labels = self._arrays()
        for at, (picture, label) in enumerate(zip(pixels, labels, strict=True), start=1):
            yield ImageRow(at, picture, label)

    def skips(self) -> dict[str, int]:
        """No rule passes over a row."""
        return {}

    def fingerprint(self) -> str:
        """Names the pictures and their labels."""
        pixels, labels = self._arrays()
        return blake2b(pixels.tobytes() + repr(labels).encode(), digest_size=16).hexdigest()

    def _arrays(self) -> tuple[Pixels, list[str]]:
        images, numerals = _images(self.split)
        rng = stream(SEED, "digits", self.question, self.split)
        count = TRAIN_ROWS[self.question] if self.split == "train" else OTHER_ROWS
        left, right = rng.integers(len(images), size=(2, count))
        if self.question == "larger":
            right = _unequal(left, right, numerals, rng)
        labels = _labels(self.question, numerals[left], numerals[right])
        return overlay(images[left], images[right], SHIFT, CANVAS), labels


def digits(question: Question) -> Task:
    """Return a task of the suite.

    Args:
        question: `left` or `right` asks for that digit, `larger` for the side of the larger one.

    >>> digits("larger").kind.labels
    ('left', 'right')
    """
    splits = {split: DigitsSource(question, split) for split in IMAGES}
    return Task(f"digits/{question}", kind(question), splits, (ACCURACY,))


def questions() -> tuple[Question, ...]:
    """Return what can be asked about a pair."""
    return get_args(Question)


def kind(question: Question) -> Classify:
    """Return the classes that a question has."""
    return Classify(("left", "right") if question == "larger" else NUMERALS)


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
    """Draws the right digit again wherever neither is the larger one."""
    while (equal := numerals[left] == numerals[right]).any():
        right = np.where(equal, rng.integers(len(numerals), size=len(right)), right)
    return right


def _labels(question: Question, left: NDArray[np.int64], right: NDArray[np.int64]) -> list[str]:
    if question == "larger":
        return ["left" if a > b else "right" for a, b in zip(left, right, strict=True)]
    return [str(numeral) for numeral in (left if question == "left" else right)]
