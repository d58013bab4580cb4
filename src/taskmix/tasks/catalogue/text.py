"""Texts of several domains for language models, from the files of other tasks of the catalogue.

Eight domains, and four that real mixtures have too: noise, two that are nearly the same, one that
is learned at once, and one that helps the others. One that is small and comes round again and again
is any of them with few rows: `{name: text/tweets, rows: 150}`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from taskmix.rng import stream
from taskmix.tasks.catalogue.entry import FilesEntry, Layout
from taskmix.tasks.catalogue.glue import GLUE
from taskmix.tasks.catalogue.inference import INFERENCE
from taskmix.tasks.catalogue.wnut import WNUT
from taskmix.tasks.kinds import Generate
from taskmix.tasks.metrics import PERPLEXITY, Metric
from taskmix.tasks.rows import PromptRow
from taskmix.tasks.shapes import Alone
from taskmix.tasks.task import Task

ROWS = {"train": 2000, "dev": 300}
"""Rows of the built-in domain."""


def _texts(
    name: str, task: str, part: Literal["text", "pair"] = "text", shuffled: bool = False
) -> FilesEntry:
    """Return one text of each row of another task as a domain."""
    [entry] = [each for each in (*GLUE, *INFERENCE, *WNUT) if each.name == task]
    layouts = tuple(_layout(layout, part, shuffled) for layout in entry.layouts)
    return FilesEntry(f"text/{name}", Generate(), (PERPLEXITY,), layouts)


def _layout(layout: Layout, part: Literal["text", "pair"], shuffled: bool) -> Layout:
    files = {split: layout.files[split] for split in ("train", "dev")}
    shape = Alone(layout.shape, part, shuffled)
    return replace(layout, files=files, shape=shape, special={}, unlabelled=frozenset())


@dataclass(frozen=True)
class Template:
    """Sentences of one form, which a language model has learned after a few steps."""

    split: Literal["train", "dev"]

    @property
    def where(self) -> str:
        """What a complaint calls it."""
        return f"text/template, {self.split}"

    def rows(self) -> Iterator[PromptRow]:
        """Yield the sentences in order."""
        rng = stream(0, self.where)
        for at in range(1, ROWS[self.split] + 1):
            day, city, sky = (words[int(rng.integers(len(words)))] for words in (DAYS, CITIES, SKY))
            yield PromptRow(at, "", f"The weather report for {day}: in {city}, expect {sky} skies.")

    def skips(self) -> Mapping[str, int]:
        """Return nothing: every row is there."""
        return {}

    def fingerprint(self) -> str:
        """Names the content."""
        return f"{self.where}, 1"


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
CITIES = ("London", "Paris", "Berlin", "Madrid", "Rome", "Vienna", "Lisbon", "Oslo")
SKY = ("clear", "cloudy", "grey", "blue")


@dataclass(frozen=True)
class TemplateEntry:
    """The domain that needs no files."""

    name = "text/template"
    kind = Generate()
    metrics: tuple[Metric, ...] = (PERPLEXITY,)

    def task(self, root: Path | None) -> Task:
        """Return the task."""
        splits = {"train": Template("train"), "dev": Template("dev")}
        return Task(self.name, self.kind, splits, self.metrics)

    def late(self, root: Path | None) -> Task:
        """Return the task."""
        return self.task(root)

    def found(self, root: Path | None) -> Mapping[str, str]:
        """Return every split, without a file."""
        return dict.fromkeys(ROWS, "built in")


TEXT = (
    _texts("reviews", "glue/sst2"),
    _texts("news", "glue/mrpc"),
    _texts("captions", "snli"),
    _texts("science", "scitail"),
    _texts("tweets", "wnut17"),
    _texts("wikipedia", "glue/qnli", "pair"),
    _texts("questions", "glue/qqp"),
    _texts("linguistics", "glue/cola"),
    _texts("noise", "glue/qnli", "pair", shuffled=True),
    _texts("questions2", "glue/qqp", "pair"),
    _texts("genres", "glue/mnli"),
    TemplateEntry(),
)
