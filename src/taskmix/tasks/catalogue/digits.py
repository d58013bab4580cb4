"""The built-in suite of overlaid digits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taskmix.tasks import digits
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY, Metric
from taskmix.tasks.task import Task


@dataclass(frozen=True)
class DigitsEntry:
    """A task that needs no files."""

    question: digits.Question

    @property
    def name(self) -> str:
        """How run files call it."""
        return f"digits/{self.question}"

    @property
    def kind(self) -> Classify:
        """What its rows become."""
        return digits.kind(self.question)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Its score is their mean."""
        return (ACCURACY,)

    def task(self, root: Path | None) -> Task:
        """Return the task."""
        return digits.digits(self.question)

    def late(self, root: Path | None) -> Task:
        """Return the task."""
        return self.task(root)

    def found(self, root: Path | None) -> Mapping[str, str]:
        """Return every split, without a file."""
        return dict.fromkeys(digits.IMAGES, "built in")


DIGITS = tuple(DigitsEntry(question) for question in digits.questions())
