"""MultiMNIST, built from MNIST's files."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from taskmix.errors import UserError
from taskmix.tasks.catalogue.entry import needs_root, spelled
from taskmix.tasks.digits import NUMERALS
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY, Metric
from taskmix.tasks.multimnist import IMAGES, LABELS, PREFIXES, MultiMnistSource, Side
from taskmix.tasks.rows import Source
from taskmix.tasks.sources import LateSource
from taskmix.tasks.task import Task

FOLDERS = ("mnist", "MNIST/raw", ".")


@dataclass(frozen=True)
class MultiMnistEntry:
    """One of the two digits."""

    side: Side

    @property
    def name(self) -> str:
        """How run files call it."""
        return f"multimnist/{self.side}"

    @property
    def kind(self) -> Classify:
        """What its rows become."""
        return Classify(NUMERALS)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Its score is their mean."""
        return (ACCURACY,)

    def task(self, root: Path | None) -> Task:
        """Return the task, or one sentence about the file that is missing."""
        sources = self._sources(needs_root(self.name, root))
        if "train" not in sources:
            path = Path(str(root), FOLDERS[0], IMAGES.format("train"))
            raise UserError(f"task {self.name}: no file {path} (nor {path.name}.gz).")
        return Task(self.name, self.kind, sources, self.metrics)

    def late(self, root: Path | None) -> Task:
        """The task of a trained model: files that are missing are complained of when read."""
        sources = {
            split: LateSource(f"task {self.name}, {split}", None, partial(self._find, root, split))
            for split in PREFIXES
        }
        return Task(self.name, self.kind, sources, self.metrics)

    def _find(self, root: Path | None, split: str) -> Source:
        return self.task(root).split(split)

    def found(self, root: Path | None) -> Mapping[str, str]:
        """Return the file of each split that is there."""
        sources = self._sources(root) if root else {}
        return {split: source.where for split, source in sources.items()}

    def _sources(self, root: Path) -> dict[str, MultiMnistSource]:
        sources = {}
        for split, prefix in PREFIXES.items():
            images = _file(root, IMAGES.format(prefix))
            labels = _file(root, LABELS.format(prefix))
            if images and labels:
                sources[split] = MultiMnistSource(images, labels, self.side, split)
        return sources


def _file(root: Path, name: str) -> Path | None:
    places = (spelled(root, f"{folder}/{name}{end}") for folder in FOLDERS for end in ("", ".gz"))
    return next((place for place in places if place), None)


MULTIMNIST = (MultiMnistEntry("left"), MultiMnistEntry("right"))
