"""Every kind of the library passes the suite that it ships."""

import numpy as np

from taskmix.tasks.kinds import KINDS, Choose, Classify, Generate, MultiLabel, Regress, Span, Tag
from taskmix.tasks.rows import (
    Answer,
    ChoiceRow,
    ImageRow,
    Mark,
    PromptRow,
    QuestionRow,
    TextRow,
    WordsRow,
)
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.testing import KindConformance

PLACES = range(1, 13)


def text(at):
    return " ".join(("the cat sat on a mat " * 9).split()[: 1 + at * 5 % 17])


class TestClassify(KindConformance):
    def make(self):
        return Classify(("no", "yes"))

    def rows(self, labelled):
        labels = ("no", "yes") if labelled else (None, None)
        return [TextRow(at, text(at), label=labels[at % 2]) for at in PLACES]


class TestClassifyPairsInGroups(KindConformance):
    def make(self):
        return Classify(("no", "yes"))

    def rows(self, labelled):
        labels = ("no", "yes") if labelled else (None, None)
        return [
            TextRow(at, text(at), text(at + 3), labels[at % 2], group=f"passage {at // 3}")
            for at in PLACES
        ]


class TestClassifyMarkedWords(KindConformance):
    def make(self):
        return Classify(("no", "yes"), marks=2)

    def rows(self, labelled):
        labels = ("no", "yes") if labelled else (None, None)
        marks = (Mark(0, 3), Mark(0, 3, second=True))
        return [TextRow(at, text(at), text(at + 1), labels[at % 2], marks) for at in PLACES]


class TestClassifyImages(KindConformance):
    def make(self):
        return Classify(("dark", "light", "grey"))

    def rows(self, labelled):
        labels = ("dark", "light", "grey") if labelled else (None,) * 3
        return [
            ImageRow(at, np.full((4, 4), 17 * at, dtype=np.uint8), labels[at % 3]) for at in PLACES
        ]

    def tokenizer(self):
        return None


class TestMultiLabel(KindConformance):
    def make(self):
        return MultiLabel(("joy", "anger", "fear"))

    def rows(self, labelled):
        labels = (("joy",), (), ("joy", "fear")) if labelled else (None,) * 3
        return [TextRow(at, text(at), text(at + 1), labels[at % 3]) for at in PLACES]


class TestRegress(KindConformance):
    probabilities = False

    def make(self):
        return Regress()

    def rows(self, labelled):
        return [TextRow(at, text(at), label=float(at) if labelled else None) for at in PLACES]


class TestTag(KindConformance):
    def make(self):
        return Tag(("O", "B-x", "I-x"))

    def rows(self, labelled):
        sentences = [tuple(text(at).split()) for at in PLACES]
        return [
            WordsRow(at, words, ("O", *["B-x"] * (len(words) - 1)) if labelled else None)
            for at, words in zip(PLACES, sentences, strict=True)
        ]


class TestSpan(KindConformance):
    def make(self):
        return Span(stride=4)

    def rows(self, labelled):
        contexts = [f"{text(at)} dog {text(at + 1)}" for at in PLACES]
        return [
            QuestionRow(
                at,
                "with one",
                context,
                (Answer("dog", context.index("dog")),) if labelled else None,
            )
            for at, context in zip(PLACES, contexts, strict=True)
        ]


class TestChoose(KindConformance):
    def make(self):
        return Choose()

    def rows(self, labelled):
        return [
            ChoiceRow(
                at,
                text(at),
                tuple(text(at + number) for number in range(2 + at % 3)),
                at % 2 if labelled else None,
            )
            for at in PLACES
        ]


def to_write():
    return Tokenizer.train_generator([text(at) for at in PLACES], 300, max_length=64)


class TestGenerate(KindConformance):
    def make(self):
        return Generate(prompts=True)

    def tokenizer(self):
        return to_write()

    def rows(self, labelled):
        return [PromptRow(at, text(at), text(at + 2) if labelled else None) for at in PLACES]


class TestGenerateTexts(KindConformance):
    """Without a label, a text is what is to be gone on from."""

    def make(self):
        return Generate()

    def tokenizer(self):
        return to_write()

    def rows(self, labelled):
        return [
            PromptRow(at, "", text(at)) if labelled else PromptRow(at, text(at)) for at in PLACES
        ]


def test_every_kind_of_the_library_is_held_to_it():
    held = {name.removeprefix("Test") for name in globals() if name.startswith("Test")}
    assert {kind.__name__ for kind in KINDS} <= held
