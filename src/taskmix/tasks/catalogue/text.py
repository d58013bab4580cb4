"""Texts of several domains for language models, from the files of other tasks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from taskmix.rng import stream
from taskmix.tasks.catalogue.corpora import INFERENCE, WNUT
from taskmix.tasks.catalogue.entry import BuiltInEntry, FilesEntry, Layout
from taskmix.tasks.catalogue.glue import GLUE
from taskmix.tasks.kinds import Generate
from taskmix.tasks.metrics import PERPLEXITY
from taskmix.tasks.rows import PromptRow
from taskmix.tasks.shapes import Alone

ROWS = {"train": 2000, "dev": 300}
"""Rows of the built-in domain."""


def _texts(
    name: str, task: str, part: Literal["text", "pair"] = "text", shuffled: bool = False
) -> FilesEntry:
    """Make a domain of one text of each row of another task."""
    [entry] = [entry for entry in (*GLUE, *INFERENCE, *WNUT) if entry.name == task]
    layouts = tuple(_layout(layout, part, shuffled) for layout in entry.layouts)
    return FilesEntry(f"text/{name}", Generate(), (PERPLEXITY,), layouts)


def _layout(layout: Layout, part: Literal["text", "pair"], shuffled: bool) -> Layout:
    files = {split: layout.files[split] for split in ("train", "dev")}
    shape = Alone(layout.shape, part, shuffled)
    return replace(layout, files=files, shape=shape, special={}, unlabelled=frozenset())


@dataclass(frozen=True)
class Template:
    """Sentences of one form, which a language model learns in a few steps."""

    split: Literal["train", "dev"]

    @property
    def where(self) -> str:
        return f"text/template, {self.split}"

    def rows(self) -> Iterator[PromptRow]:
        rng = stream(0, self.where)
        for at in range(1, ROWS[self.split] + 1):
            day, city, sky = (words[int(rng.integers(len(words)))] for words in (DAYS, CITIES, SKY))
            yield PromptRow(at, "", f"The weather report for {day}: in {city}, expect {sky} skies.")

    def skips(self) -> Mapping[str, int]:
        return {}

    def fingerprint(self) -> str:
        return f"{self.where}, 1"


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
CITIES = ("London", "Paris", "Berlin", "Madrid", "Rome", "Vienna", "Lisbon", "Oslo")
SKY = ("clear", "cloudy", "grey", "blue")

_SPLITS = {"train": Template("train"), "dev": Template("dev")}
TEMPLATE = BuiltInEntry("text/template", Generate(), (PERPLEXITY,), _SPLITS)

TEXT = (
    _texts("reviews", "glue/sst2"),
    _texts("news", "glue/mrpc"),
    _texts("captions", "snli"),
    _texts("science", "scitail"),
    _texts("tweets", "wnut17"),
    _texts("wikipedia", "glue/qnli", "pair"),
    _texts("questions", "glue/qqp"),
    _texts("linguistics", "glue/cola"),
    # Real mixtures also have noise, a near copy, a helpful domain, and one that is learned at once.
    _texts("noise", "glue/qnli", "pair", shuffled=True),
    _texts("questions2", "glue/qqp", "pair"),
    _texts("genres", "glue/mnli"),
    TEMPLATE,
)
