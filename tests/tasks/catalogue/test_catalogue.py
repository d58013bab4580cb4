import gzip
import json
from pathlib import Path

import pytest

from taskmix.errors import UserError
from taskmix.tasks.catalogue import find, listing
from taskmix.tasks.rows import Answer, QuestionRow, TextRow, WordsRow

RTE = 'index\tsentence1\tsentence2\tlabel\n0\tIt "rains\t.\tentailment\n'


def put(path: Path, text: str, packed: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKMIX_DATA", raising=False)


@pytest.mark.parametrize(
    ("folder", "packed"),
    [("glue/RTE", False), ("glue/rte", True), ("GLUE/RTE", True), ("RTE", False), ("rte", True)],
)
def test_folders_are_found_however_they_are_spelled(
    tmp_path: Path, folder: str, packed: bool
) -> None:
    for split in ("train", "dev"):
        put(tmp_path / folder / f"{split}.tsv{'.gz' if packed else ''}", RTE, packed)
    assert list(find("glue/rte", tmp_path).split("dev").rows()) == [
        TextRow(2, 'It "rains', ".", "entailment", id="0")
    ]


def test_task_names_may_be_spelled_as_the_benchmarks_do(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        put(tmp_path / "SST-2" / f"{split}.tsv", "sentence\tlabel\ngood \t1\n")
    assert find("glue/SST-2", tmp_path).name == find("glue/sst2", tmp_path).name == "glue/sst2"


def test_the_environment_names_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in ("train", "dev"):
        put(tmp_path / "glue/RTE" / f"{split}.tsv", RTE)
    monkeypatch.setenv("TASKMIX_DATA", str(tmp_path))
    assert next(find("glue/rte").split("train").rows()).at == 2


def test_mistakes_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown task 'glue/rtf'; did you mean 'glue/rte'\?"):
        find("glue/rtf", tmp_path)
    with pytest.raises(UserError, match=r"task glue/rte: .*--data.*TASKMIX_DATA"):
        find("glue/rte").split("train").rows()
    with pytest.raises(UserError, match=r"task glue/rte: no file .*glue/RTE/train\.tsv"):
        find("glue/rte", tmp_path).split("train").rows()
    with pytest.raises(UserError, match=r"the data folder .*absent is not there"):
        find("glue/rte", tmp_path / "absent").split("dev").fingerprint()
    put(tmp_path / "glue/RTE/train.tsv", RTE)
    with pytest.raises(UserError, match=r"task glue/rte: no file .*glue/RTE/dev\.tsv"):
        find("glue/rte", tmp_path).split("dev").rows()


def test_the_listing_says_what_is_there(tmp_path: Path) -> None:
    put(tmp_path / "glue/RTE/train.tsv", RTE)
    listed = {line.name: line for line in listing(tmp_path)}
    assert listed["glue/rte"].kind == "classify"
    assert listed["glue/rte"].metrics == ("accuracy",)
    assert list(listed["glue/rte"].found) == ["train"]
    assert listed["digits/left"].found["train"] == "built in"
    assert not listed["glue/cola"].found
    assert len(listed) == len(listing(tmp_path))
    assert not {line.name: line for line in listing()}["glue/rte"].found


def test_every_glue_task_has_its_official_metrics() -> None:
    metrics = {line.name: line.metrics for line in listing()}
    assert metrics["glue/cola"] == ("matthews",)
    assert metrics["glue/mrpc"] == metrics["glue/qqp"] == ("accuracy", "f1")
    assert metrics["glue/stsb"] == ("pearson", "spearman")
    for name in ("sst2", "rte", "wnli", "qnli", "mnli"):
        assert metrics[f"glue/{name}"] == ("accuracy",)


def test_test_splits_come_without_labels_and_with_their_own_headers(tmp_path: Path) -> None:
    cola = tmp_path / "glue" / "CoLA"
    put(cola / "train.tsv", "gj04\t1\t\tIt rains.\ngj04\t0\t*\tRains it it.\n")
    put(cola / "dev.tsv", "gj04\t1\t\tIt rains.\n")
    put(cola / "test.tsv", "index\tsentence\n0\tIt snows.\n")
    task = find("glue/cola", tmp_path)
    assert list(task.split("train").rows())[1] == TextRow(2, "Rains it it.", label="0")
    assert list(task.split("test").rows()) == [TextRow(2, "It snows.", id="0")]

    mrpc = tmp_path / "glue" / "MRPC"
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    put(mrpc / "train.tsv", header + '1\t10\t11\tHe said " no " .\tNo , he said .\r\n')
    put(mrpc / "dev.tsv", header + "0\t10\t11\ta\tb\r\n")
    put(mrpc / "test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n4\t10\t11\ta\tb\n")
    task = find("glue/mrpc", tmp_path)
    assert list(task.split("train").rows()) == [
        TextRow(2, 'He said " no " .', "No , he said .", "1")
    ]
    assert list(task.split("test").rows()) == [TextRow(2, "a", "b", id="4")]


def test_mnli_has_two_development_and_two_test_sets(tmp_path: Path) -> None:
    columns = "index promptID pairID genre s1bp s2bp s1p s2p sentence1 sentence2"
    train = [*columns.split(), "label1", "gold_label"]
    dev = [*columns.split(), *(f"label{i}" for i in range(1, 6)), "gold_label"]
    for name, header in (("train", train), ("dev_matched", dev), ("dev_mismatched", dev)):
        row = {name: name for name in header} | {"index": "3", "gold_label": "neutral"}
        lines = ["\t".join(header), "\t".join(row.values())]
        put(tmp_path / "MNLI" / f"{name}.tsv", "\n".join(lines))
    for name in ("test_matched", "test_mismatched"):
        put(tmp_path / "MNLI" / f"{name}.tsv", "\t".join(columns.split()) + "\n" + "x\t" * 9 + "x")
    task = find("glue/mnli", tmp_path)
    assert list(task.splits) == ["train", "dev", "dev_mismatched", "test", "test_mismatched"]
    expected = TextRow(2, "sentence1", "sentence2", "neutral", id="3", passage="sentence1")
    assert list(task.split("dev_mismatched").rows()) == [expected]
    assert next(task.split("test").rows()).label is None


def test_questions_broken_over_two_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    broken = "2\t3\t4\tWhy\nso?\tHow?\t1\n"
    for split in ("train", "dev"):
        put(tmp_path / "QQP" / f"{split}.tsv", f"{header}1\t1\t2\tWho?\tWhat?\t0\n{broken}")
    train = find("glue/qqp", tmp_path).split("train")
    assert list(train.rows()) == [TextRow(2, "Who?", "What?", "0")]
    assert train.skips() == {"too few columns": 2}


def test_a_row_with_too_few_columns_is_an_error_elsewhere(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        put(tmp_path / "RTE" / f"{split}.tsv", f"{RTE}1\tOnly one\n")
    with pytest.raises(UserError, match=r"train\.tsv, row 3: too few columns, 2 where .* has 4"):
        list(find("glue/rte", tmp_path).split("train").rows())


SNLI_LINES = [
    {"gold_label": "neutral", "sentence1": "a", "sentence2": "b", "pairID": "1"},
    {"gold_label": "-", "sentence1": "c", "sentence2": "d", "pairID": "2"},
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", ["snli_1.0", "snli", "snli/snli_1.0", "."])
def test_snli_in_its_official_jsonl_skips_pairs_without_a_gold_label(
    tmp_path: Path, folder: str, packed: bool
) -> None:
    text = "".join(json.dumps(line) + "\n" for line in SNLI_LINES)
    for split in ("train", "dev", "test"):
        name = f"snli_1.0_{split}.jsonl{'.gz' if packed else ''}"
        put(tmp_path / folder / name, text, packed)
    task = find("snli", tmp_path)
    for split in ("train", "dev", "test"):
        assert list(task.split(split).rows()) == [TextRow(1, "a", "b", "neutral", passage="a")]
        assert task.split(split).skips() == {"label '-'": 1}


def test_snli_in_its_official_tab_format(tmp_path: Path) -> None:
    header = (
        "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tcaptionID\tpairID\t"
        "label1\tlabel2\tlabel3\tlabel4\tlabel5\n"
    )
    row = "neutral\t( a )\t( b )\t(S)\t(S)\ta\tb\t1.jpg#0\t1.jpg#0r\tneutral\t\t\t\t\n"
    for split in ("train", "dev"):
        put(tmp_path / "snli_1.0" / f"snli_1.0_{split}.txt", header + row)
    assert list(find("snli", tmp_path).split("train").rows()) == [
        TextRow(2, "a", "b", "neutral", passage="a")
    ]


def test_scitail_in_its_three_formats(tmp_path: Path) -> None:
    expected = [
        TextRow(1, "p", "h", "entailment", passage="h"),
        TextRow(2, "p", "i", "neutral", passage="i"),
    ]
    snli = [
        {"gold_label": "entailment", "sentence1": "p", "sentence2": "h"},
        {"gold_label": "neutral", "sentence1": "p", "sentence2": "i"},
    ]
    simple = [
        {"premise": "p", "hypothesis": "h", "label": "entailment"},
        {"premise": "p", "hypothesis": "i", "label": "neutral"},
    ]
    contents = {
        "scitail/{}.jsonl": "\n".join(map(json.dumps, simple)),
        "SciTailV1.1/snli_format/scitail_1.0_{}.txt": "\n".join(map(json.dumps, snli)),
        "SciTailV1.1/tsv_format/scitail_1.0_{}.tsv": "p\th\tentails\np\ti\tneutral\n",
    }
    for number, (name, content) in enumerate(contents.items()):
        root = tmp_path / str(number)
        for split in ("train", "dev", "test"):
            put(root / name.format(split), content)
        task = find("scitail", root)
        assert list(task.split("train").rows()) == list(task.split("test").rows()) == expected


SQUAD = {
    "version": "1.1",
    "data": [
        {
            "paragraphs": [
                {
                    "context": "the cat sat",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "who?",
                            "answers": [{"text": "cat", "answer_start": 4}],
                        }
                    ],
                }
            ]
        }
    ],
}
MRQA = {
    "context": "the cat sat",
    "qas": [
        {
            "qid": "q1",
            "question": "who?",
            "answers": ["Cat", "feline"],
            "detected_answers": [{"text": "Cat", "char_spans": [[4, 6]]}],
        }
    ],
}


@pytest.mark.parametrize(
    ("task", "path", "reads"),
    [
        ("squad", "mrqa/{}/SQuAD.jsonl.gz", "mrqa"),
        ("squad", "{}/SQuAD.jsonl.gz", "mrqa"),
        ("squad", "mrqa/squad/{}.jsonl", "mrqa"),
        ("squad", "squad/{}.json", "squad"),
        ("squad", "SQuAD/{}-v1.1.json.gz", "squad"),
        ("newsqa", "MRQA/{}/NewsQA.jsonl", "mrqa"),
        ("newsqa", "newsqa/{}.json.gz", "squad"),
        ("triviaqa", "mrqa/{}/TriviaQA-web.jsonl.gz", "mrqa"),
        ("searchqa", "mrqa/{}/SearchQA.jsonl.gz", "mrqa"),
        ("hotpotqa", "mrqa/{}/HotpotQA.jsonl.gz", "mrqa"),
        ("naturalquestions", "mrqa/{}/NaturalQuestionsShort.jsonl.gz", "mrqa"),
        ("naturalquestions", "natural-questions/{}.json", "squad"),
    ],
)
def test_mrqa_sets_come_in_two_formats(tmp_path: Path, task: str, path: str, reads: str) -> None:
    header = json.dumps({"header": {"dataset": "x", "split": "train"}})
    text = f"{header}\n{json.dumps(MRQA)}\n" if reads == "mrqa" else json.dumps(SQUAD)
    for split in ("train", "dev"):
        put(tmp_path / path.format(split), text, packed=path.endswith(".gz"))
    at = 2 if reads == "mrqa" else 1
    accepted = ("Cat", "feline") if reads == "mrqa" else None
    expected = QuestionRow(at, "who?", "the cat sat", (Answer("cat", 4),), "q1", accepted)
    assert list(find(f"mrqa/{task}", tmp_path).split("dev").rows()) == [expected]


@pytest.mark.parametrize(
    "files",
    [
        ("wnut17/train.conll", "wnut17/dev.conll", "wnut17/test.conll"),
        ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        (
            "wnut17/wnut17train.conll",
            "wnut17/emerging.dev.conll",
            "wnut17/emerging.test.annotated",
        ),
    ],
)
def test_wnut_is_read_with_its_tags(tmp_path: Path, files: tuple[str, str, str]) -> None:
    for file in files:
        put(tmp_path / file, "Empire\tB-location\nState\tI-location\n.\tO\n\t\nHi\tO\n")
    task = find("wnut17", tmp_path)
    for split in ("train", "dev", "test"):
        assert list(task.split(split).rows()) == [
            WordsRow(1, ("Empire", "State", "."), ("B-location", "I-location", "O")),
            WordsRow(5, ("Hi",), ("O",)),
        ]
    assert len(task.kind.spec()["labels"]) == 13


def test_the_catalogue_has_every_task_of_the_papers() -> None:
    names = [line.name for line in listing()]
    assert len(set(names)) == len(names)
    assert sum(name.startswith("glue/") for name in names) == 9
    assert sum(name.startswith("superglue/") for name in names) == 8
    assert sum(name.startswith("mrqa/") for name in names) == 6
    assert {"snli", "scitail", "wnut17", "multimnist/left", "multimnist/right"} <= set(names)
