"""SNLI (Bowman et al. 2015) and SciTail (Khot et al. 2018), in jsonl and in their tab formats.

SNLI's pairs on which its annotators did not agree (label `-`) are skipped and counted.
"""

from dataclasses import replace

from taskmix.tasks.catalogue.entry import FilesEntry, Layout
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY
from taskmix.tasks.readers import Jsonl, PlainTsv, Reader
from taskmix.tasks.shapes import Texts

SIMPLE = Texts("premise", "hypothesis", "label", unlabelled="-")
OFFICIAL = Texts("sentence1", "sentence2", "gold_label", unlabelled="-")
ENTAILS = Texts("premise", "hypothesis", "label", aliases=(("entails", "entailment"),))
TABS = PlainTsv(("premise", "hypothesis", "label"), wide="cut")


def _layout(names: str, reader: Reader, shape: Texts, folders: tuple[str, ...]) -> Layout:
    files = {split: names.format(split) for split in ("train", "dev", "test")}
    return Layout(files, reader, shape, folders, unlabelled=frozenset())


def _snli(names: str, reader: Reader, shape: Texts, *others: str) -> Layout:
    """Return a distribution of SNLI, whose own splits share no premise."""
    return _layout(names, reader, replace(shape, passage=shape.text), ("snli", *others))


def _scitail(names: str, reader: Reader, shape: Texts, *others: str) -> Layout:
    """Return a distribution of SciTail, whose own splits share no hypothesis."""
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
