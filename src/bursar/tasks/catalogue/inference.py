"""SNLI (Bowman et al. 2015) and SciTail (Khot et al. 2018), in jsonl and in their tab formats.

SNLI's pairs on which its annotators did not agree (label `-`) are skipped and counted.
"""

from bursar.tasks.catalogue.entry import FilesEntry, Layout
from bursar.tasks.kinds import Classify
from bursar.tasks.metrics import ACCURACY
from bursar.tasks.readers import Jsonl, Reader, Tsv
from bursar.tasks.shapes import Texts

SIMPLE = Texts("premise", "hypothesis", "label", unlabelled="-")
OFFICIAL = Texts("sentence1", "sentence2", "gold_label", unlabelled="-")
ENTAILS = Texts("premise", "hypothesis", "label", aliases=(("entails", "entailment"),))


def _layout(names: str, reader: Reader, shape: Texts, *folders: str) -> Layout:
    files = {split: names.format(split) for split in ("train", "dev", "test")}
    return Layout(files, reader, shape, folders, unlabelled=frozenset())


_SNLI = ("snli", "snli/snli_1.0", "snli_1.0", ".")
_SCITAIL = ("scitail", "SciTailV1.1", "scitail/SciTailV1.1", ".")

INFERENCE = (
    FilesEntry(
        "snli",
        Classify(("entailment", "neutral", "contradiction")),
        (ACCURACY,),
        (
            _layout("{}.jsonl", Jsonl(), SIMPLE, "snli"),
            _layout("snli_1.0_{}.jsonl", Jsonl(), OFFICIAL, *_SNLI),
            _layout("snli_1.0_{}.txt", Tsv(wide="cut"), OFFICIAL, *_SNLI),
        ),
    ),
    FilesEntry(
        "scitail",
        Classify(("entailment", "neutral")),
        (ACCURACY,),
        (
            _layout("{}.jsonl", Jsonl(), SIMPLE, "scitail"),
            _layout(
                "snli_format/scitail_1.0_{}.txt",
                Jsonl(),
                OFFICIAL,
                *_SCITAIL,
            ),
            _layout(
                "tsv_format/scitail_1.0_{}.tsv",
                Tsv(("premise", "hypothesis", "label"), wide="cut"),
                ENTAILS,
                *_SCITAIL,
            ),
            _layout(
                "scitail_1.0_{}.tsv",
                Tsv(("premise", "hypothesis", "label"), wide="cut"),
                ENTAILS,
                *_SCITAIL,
            ),
        ),
    ),
)
