"""The tasks on images: the built-in overlaid digits, and MultiMNIST."""

from dataclasses import dataclass
from pathlib import Path

from taskmix.tasks.catalogue.entry import BuiltInEntry, Entry, find_file
from taskmix.tasks.digits import NUMERALS, TRAIN_ROWS, digits
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY
from taskmix.tasks.multimnist import IMAGES, LABELS, PREFIXES, MultiMnistSource, Side
from taskmix.tasks.sources import MissingSource

DIGITS = tuple(
    BuiltInEntry(task.name, task.kind, task.metrics, task.splits)
    for task in map(digits, TRAIN_ROWS)
)
FOLDERS = ("mnist", "MNIST/raw", ".")


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


def _multimnist(side: Side) -> MultiMnistEntry:
    return MultiMnistEntry(f"multimnist/{side}", Classify(NUMERALS), (ACCURACY,), side)


MULTIMNIST = (_multimnist("left"), _multimnist("right"))
