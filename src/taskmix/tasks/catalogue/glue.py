"""The nine tasks of GLUE (Wang et al. 2018), from the files of gluebenchmark.com."""

from taskmix.tasks.catalogue.entry import FilesEntry, Layout
from taskmix.tasks.kinds import Classify, Kind, Regress
from taskmix.tasks.metrics import ACCURACY, F1, MATTHEWS, PEARSON, SPEARMAN, Metric
from taskmix.tasks.readers import PlainTsv, Reader
from taskmix.tasks.shapes import Shape, Texts

# Labels are in the benchmark's order.
BINARY = Classify(("0", "1"))
ENTAILMENT = Classify(("entailment", "not_entailment"))
INFERENCE = Classify(("entailment", "neutral", "contradiction"))

THREE_SPLITS = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
WITH_HEADER = PlainTsv(wide="cut")

SENTENCES = Texts("sentence1", "sentence2", "label", id="index")


def _entry(
    folder: str,
    kind: Kind,
    metrics: tuple[Metric, ...],
    shape: Shape,
    *,
    reader: Reader = WITH_HEADER,
    test: Shape | None = None,
    files: dict[str, str] | None = None,
) -> FilesEntry:
    name = folder.lower().replace("-", "")
    layout = Layout(
        files or THREE_SPLITS,
        reader,
        shape,
        folders=(f"glue/{folder}", f"glue_data/{folder}", folder),
        special={"test": (WITH_HEADER, test)} if test else {},
    )
    return FilesEntry(f"glue/{name}", kind, metrics, (layout,))


GLUE = (
    _entry(
        "CoLA",
        BINARY,
        (MATTHEWS,),
        Texts("sentence", label="label"),
        reader=PlainTsv(("source", "label", "mark", "sentence"), wide="cut"),
        test=Texts("sentence", id="index"),
    ),
    _entry(
        "SST-2",
        BINARY,
        (ACCURACY,),
        Texts("sentence", label="label"),
        test=Texts("sentence", id="index"),
    ),
    _entry(
        "MRPC",
        BINARY,
        (ACCURACY, F1),
        Texts("#1 String", "#2 String", "Quality"),
        test=Texts("#1 String", "#2 String", id="index"),
    ),
    _entry(
        "STS-B",
        Regress(),
        (PEARSON, SPEARMAN),
        Texts("sentence1", "sentence2", "score", holds="number", id="index"),
    ),
    _entry(
        "QQP",
        BINARY,
        (ACCURACY, F1),
        Texts("question1", "question2", "is_duplicate", broken=True),
        test=Texts("question1", "question2", id="id"),
    ),
    _entry(
        "MNLI",
        INFERENCE,
        (ACCURACY,),
        Texts("sentence1", "sentence2", "gold_label", id="index", passage="sentence1"),
        files={
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "test": "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
            "diagnostic": "../diagnostic/diagnostic.tsv",
        },
    ),
    _entry(
        "QNLI",
        ENTAILMENT,
        (ACCURACY,),
        Texts("question", "sentence", "label", id="index", passage="question"),
    ),
    _entry("RTE", ENTAILMENT, (ACCURACY,), SENTENCES),
    _entry("WNLI", BINARY, (ACCURACY,), SENTENCES),
)
