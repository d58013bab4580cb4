"""SNLI, SciTail, WNUT 2017 and the six training sets of MRQA 2019."""

from collections.abc import Iterator
from dataclasses import replace

from taskmix.tasks.catalogue.entry import FilesEntry, Layout
from taskmix.tasks.kinds import Classify, Span, Tag
from taskmix.tasks.metrics import ACCURACY, ENTITY_F1, EXACT_MATCH, TOKEN_F1
from taskmix.tasks.readers import Conll, Jsonl, Mrqa, PlainTsv, Reader, Squad
from taskmix.tasks.shapes import Questions, Texts, Words

# Bowman et al. 2015 (SNLI), Khot et al. 2018 (SciTail). Pairs with the label `-`, on which the
# annotators of SNLI did not agree, are skipped and counted.
SIMPLE = Texts("premise", "hypothesis", "label", unlabelled="-")
OFFICIAL = Texts("sentence1", "sentence2", "gold_label", unlabelled="-")
ENTAILS = Texts("premise", "hypothesis", "label", aliases=(("entails", "entailment"),))
TABS = PlainTsv(("premise", "hypothesis", "label"), wide="cut")


def _layout(names: str, reader: Reader, shape: Texts, folders: tuple[str, ...]) -> Layout:
    files = {split: names.format(split) for split in ("train", "dev", "test")}
    return Layout(files, reader, shape, folders, unlabelled=frozenset())


def _snli(names: str, reader: Reader, shape: Texts, *others: str) -> Layout:
    """Return a distribution of SNLI; its splits share no premise, so neither may ours."""
    return _layout(names, reader, replace(shape, passage=shape.text), ("snli", *others))


def _scitail(names: str, reader: Reader, shape: Texts, *others: str) -> Layout:
    """Return a distribution of SciTail; its splits share no hypothesis, so neither may ours."""
    return _layout(names, reader, replace(shape, passage=shape.pair), ("scitail", *others))


_SNLI = ("snli/snli_1.0", "snli_1.0", ".")
_SCITAIL = ("SciTailV1.1", "scitail/SciTailV1.1", ".")

INFERENCE = (
    FilesEntry(
        "snli",
        Classify(("entailment", "neutral", "contradiction")),
        (ACCURACY,),
        (
            _snli("{}.jsonl", Jsonl(), SIMPLE),
            _snli("snli_1.0_{}.jsonl", Jsonl(), OFFICIAL, *_SNLI),
            _snli("snli_1.0_{}.txt", PlainTsv(wide="cut"), OFFICIAL, *_SNLI),
        ),
    ),
    FilesEntry(
        "scitail",
        Classify(("entailment", "neutral")),
        (ACCURACY,),
        (
            _scitail("{}.jsonl", Jsonl(), SIMPLE),
            _scitail("snli_format/scitail_1.0_{}.txt", Jsonl(), OFFICIAL, *_SCITAIL),
            _scitail("tsv_format/scitail_1.0_{}.tsv", TABS, ENTAILS, *_SCITAIL),
            _scitail("scitail_1.0_{}.tsv", TABS, ENTAILS, *_SCITAIL),
        ),
    ),
)

# Derczynski et al. 2017, emerging and rare entities.
ENTITIES = ("corporation", "creative-work", "group", "location", "person", "product")
TAGS = ("O", *(f"{part}-{entity}" for entity in ENTITIES for part in "BI"))

WNUT_SIMPLE = {"train": "train.conll", "dev": "dev.conll", "test": "test.conll"}
WNUT_OFFICIAL = {
    "train": "wnut17train.conll",
    "dev": "emerging.dev.conll",
    "test": "emerging.test.annotated",
}

WNUT = (
    FilesEntry(
        "wnut17",
        Tag(TAGS),
        (ENTITY_F1,),
        (
            Layout(WNUT_SIMPLE, Conll(), Words(), ("wnut17",), unlabelled=frozenset()),
            Layout(WNUT_OFFICIAL, Conll(), Words(), ("wnut17", "."), unlabelled=frozenset()),
        ),
    ),
)


def _mrqa_layout(train: str, dev: str, reader: Reader, *folders: str) -> Layout:
    return Layout({"train": train, "dev": dev}, reader, Questions(), folders)


def _mrqa_layouts(name: str, files: tuple[str, ...]) -> Iterator[Layout]:
    for file in files:
        yield _mrqa_layout(f"train/{file}.jsonl", f"dev/{file}.jsonl", Mrqa(), "mrqa", ".")
    folders = (f"mrqa/{name}", name)
    yield _mrqa_layout("train.jsonl", "dev.jsonl", Mrqa(), *folders)
    yield _mrqa_layout("train.json", "dev.json", Squad(), *folders)
    yield _mrqa_layout("train-v1.1.json", "dev-v1.1.json", Squad(), *folders)


def _mrqa(name: str, *files: str) -> FilesEntry:
    layouts = tuple(_mrqa_layouts(name, files))
    return FilesEntry(f"mrqa/{name}", Span(), (EXACT_MATCH, TOKEN_F1), layouts)


# Fisch et al. 2019.
MRQA = (
    _mrqa("squad", "SQuAD"),
    _mrqa("newsqa", "NewsQA"),
    _mrqa("triviaqa", "TriviaQA-web", "TriviaQA"),
    _mrqa("searchqa", "SearchQA"),
    _mrqa("hotpotqa", "HotpotQA"),
    _mrqa("naturalquestions", "NaturalQuestionsShort", "NaturalQuestions"),
)
