"""MultiMNIST: two digits of MNIST on one canvas (Sabour et al. 2017; Sener and Koltun 2018)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import unpack
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.rng import stream
from taskmix.tasks.catalogue.digits import NUMERALS, Pixels, overlay
from taskmix.tasks.catalogue.entry import Entry, find_file
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY
from taskmix.tasks.readers.lines import contents
from taskmix.tasks.rows import ImageRow
from taskmix.tasks.sources import MissingSource, fingerprint

Side = Literal["left", "right"]

DIGIT = 28
SHIFT = 6
CANVAS = 36
DEV_ROWS = 10_000
PREFIXES = {"train": "train", "dev": "train", "test": "t10k"}
FOLDERS = ("mnist", "MNIST/raw", ".")
IMAGES = "{}-images-idx3-ubyte"
LABELS = "{}-labels-idx1-ubyte"
UNSIGNED_BYTES = b"\x00\x00\x08"
"""The first bytes of an IDX file, the format of MNIST, whose values are bytes."""


@dataclass(frozen=True)
class MultiMnistSource:
    """Overlaid digits of one split.

    Every image of MNIST is once the left digit, with a random right one of the same file. The
    canvas of 36 by 36 is scaled to 28 by 28 by nearest pixels. Of the 60,000 training pairs, a
    random 10,000 are the dev set (Kourdis et al. 2020).
    """

    images: Path
    labels: Path
    side: Side  # of the digit that is the label
    split: str
    seed: int = 0

    @property
    def where(self) -> str:
        return str(self.images)

    def rows(self) -> Iterator[ImageRow]:
        images, labels = self._mnist()
        right = stream(self.seed, "multimnist", PREFIXES[self.split]).integers(
            len(images), size=len(images)
        )
        side_labels = labels if self.side == "left" else labels[right]
        pixels = np.arange(DIGIT) * CANVAS // DIGIT
        for left in self._left_images(len(images)):
            canvas = overlay(images[left, None], images[right[left], None], SHIFT, CANVAS)[0]
            yield ImageRow(int(left) + 1, canvas[pixels[:, None], pixels], str(side_labels[left]))

    def skips(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        return fingerprint((self.side, self.split, self.seed), self.images, self.labels)

    def _mnist(self) -> tuple[Pixels, Pixels]:
        images, labels = read_idx(self.images, 3), read_idx(self.labels, 1)
        if images.shape[1:] != (DIGIT, DIGIT):
            raise UserError(f"{self.images}: images of {images.shape[1:]}, expected 28 by 28.")
        if len(images) != len(labels) or not len(labels):
            raise UserError(f"{self.images}: {len(images)} images, but {len(labels)} labels.")
        return images, labels

    def _left_images(self, count: int) -> NDArray[np.int64]:
        if self.split == "test":
            return np.arange(count)
        order = stream(self.seed, "multimnist", "dev").permutation(count)
        cut = min(DEV_ROWS, count // 6)
        return np.sort(order[:cut] if self.split == "dev" else order[cut:])


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an IDX file of bytes, gzipped or plain."""
    data = contents(path)
    start = 4 + 4 * dimensions
    if data[:4] != UNSIGNED_BYTES + bytes([dimensions]) or len(data) < start:
        raise UserError(
            f"{path}: not an IDX file of bytes in {dimensions} dimensions, begins with "
            f"{data[:4].hex(' ')!r}."
        )
    shape = unpack(f">{dimensions}I", data[4:start])
    expected = int(np.prod(shape, dtype=object))
    if len(data) - start != expected:
        raise UserError(
            f"{path}: {len(data) - start} bytes follow the header, expected {expected}."
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


@dataclass(frozen=True)
class MultiMnistEntry(Entry):
    side: Side

    def sources(self, root: Path | None) -> dict[str, MultiMnistSource]:
        if root is None:
            return {}
        sources = {}
        for split, prefix in PREFIXES.items():
            images = find_file(root, FOLDERS, IMAGES.format(prefix))
            labels = find_file(root, FOLDERS, LABELS.format(prefix))
            if images and labels:
                sources[split] = MultiMnistSource(images, labels, self.side, split)
        return sources

    def missing(self, root: Path | None, split: str) -> MissingSource:
        file = f"{FOLDERS[0]}/{IMAGES.format(PREFIXES[split])}"
        return MissingSource(f"task {self.name}, {split}", self.complaint(root, file))


def _entry(side: Side) -> MultiMnistEntry:
    return MultiMnistEntry(f"multimnist/{side}", Classify(NUMERALS), (ACCURACY,), side)


MULTIMNIST = (_entry("left"), _entry("right"))
