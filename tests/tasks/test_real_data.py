"""The real files give the counts that they are known to have, and their first and last examples.

The examples are read here a second time, with nothing but gzip, split and json.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from taskmix.tasks.catalogue import find
from taskmix.tasks.encoding import encode
from taskmix.tasks.parts import Split, hold_out, some_rows
from taskmix.tasks.readers.quoting import is_quoted
from taskmix.tasks.rows import Answer, ChoiceRow, QuestionRow, Source, TextRow, WordsRow
from taskmix.tasks.tokenizer import Tokenizer

# For each task: its files, its rows in train and dev, and its labels in train.
GLUE: dict[str, tuple[str, tuple[int, int], dict[str, int]]] = {
    "cola": ("CoLA", (8551, 1043), {"0": 2528, "1": 6023}),
    "sst2": ("SST-2", (67349, 872), {"0": 29780, "1": 37569}),
    "mrpc": ("MRPC", (3668, 408), {"0": 1194, "1": 2474}),
    "stsb": ("STS-B", (5749, 1500), {}),
    "rte": ("RTE", (2490, 277), {"entailment": 1249, "not_entailment": 1241}),
    "wnli": ("WNLI", (635, 71), {"0": 323, "1": 312}),
    "qnli": ("QNLI", (8999, 5463), {"entailment": 4523, "not_entailment": 4476}),
    "mnli": (
        "MNLI",
        (26044, 9815),
        {"entailment": 7417, "neutral": 9329, "contradiction": 9298},
    ),
    "qqp": ("QQP", (15338, 1000), {"0": 9724, "1": 5614}),
}
# The columns of text, pair and label, from 0.
PLACES = {
    "cola": (3, None, 1),
    "sst2": (0, None, 1),
    "mrpc": (3, 4, 0),
    "stsb": (7, 8, 9),
    "rte": (1, 2, 3),
    "wnli": (1, 2, 3),
    "qnli": (1, 2, 3),
    "mnli": (1, 2, 3),
    "qqp": (1, 2, 3),
}
JSONL: dict[str, tuple[str, tuple[int, int], dict[str, int]]] = {
    "superglue/cb": (
        "superglue/CB/{}.jsonl.gz",
        (250, 56),
        {"entailment": 115, "contradiction": 119, "neutral": 16},
    ),
    "superglue/rte": (
        "superglue/RTE/{}.jsonl.gz",
        (2490, 277),
        {"entailment": 1249, "not_entailment": 1241},
    ),
    "superglue/wic": ("superglue/WiC/{}.jsonl.gz", (5428, 638), {"false": 2714, "true": 2714}),
    "superglue/wsc": ("superglue/WSC/{}.jsonl.gz", (554, 104), {"false": 295, "true": 259}),
    "snli": (
        "snli/{}.jsonl.gz",
        (99890, 9842),
        {"entailment": 33385, "neutral": 33194, "contradiction": 33311},
    ),
    "scitail": ("scitail/{}.jsonl.gz", (9468, 1304), {"entailment": 3965, "neutral": 5503}),
}


def texts(data: Path, name: str, split: str) -> list[TextRow]:
    return list(find(name, data).split(split).rows())  # type: ignore[arg-type]


def raw_lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


@pytest.mark.parametrize("name", GLUE)
def test_glue(data: Path, name: str) -> None:
    folder, sizes, labels = GLUE[name]
    dev_file = "dev_matched" if name == "mnli" else "dev"
    for split, file, size in zip(("train", "dev"), ("train", dev_file), sizes, strict=True):
        rows = texts(data, f"glue/{name}", split)
        assert len(rows) == size
        raw = raw_lines(data / "glue" / folder / f"{file}.tsv.gz")
        for row, line in ((rows[0], raw[0 if name == "cola" else 1]), (rows[-1], raw[-1])):
            check_line(row, line.split("\t"), name)
        if labels:
            check_labels(rows, labels, split)


def check_labels(rows: list[TextRow], labels: dict[str, int], split: str) -> None:
    found = Counter(row.label for row in rows)
    assert found == labels if split == "train" else set(found) == set(labels)


def check_line(row: TextRow, fields: list[str], name: str) -> None:
    text, pair, label = PLACES[name]
    assert row.text == fields[text]
    assert row.pair == (None if pair is None else fields[pair])
    assert row.label == (float(fields[label]) if name == "stsb" else fields[label])


@pytest.mark.parametrize("name", JSONL)
def test_jsonl(data: Path, name: str) -> None:
    pattern, sizes, labels = JSONL[name]
    dev_file = "val" if name.startswith("superglue") else "dev"
    for split, file, size in zip(("train", "dev"), ("train", dev_file), sizes, strict=True):
        rows = texts(data, name, split)
        assert len(rows) == size
        raw = raw_lines(data / pattern.format(file))
        for row, line in ((rows[0], raw[0]), (rows[-1], raw[-1])):
            check_mapping(row, json.loads(line))
        check_labels(rows, labels, split)


def check_mapping(row: TextRow, line: dict[str, Any]) -> None:
    label = line["label"]
    assert row.label == (str(label).lower() if isinstance(label, bool) else label)
    assert row.text in (line.get("premise"), line.get("sentence1"), line.get("text"))
    assert row.pair == line.get("hypothesis", line.get("sentence2"))


def test_stsb_scores_are_between_0_and_5(data: Path) -> None:
    scores = [row.label for row in texts(data, "glue/stsb", "train")]
    assert (min(scores), max(scores)) == (0.0, 5.0)  # type: ignore[type-var]


def test_multirc_passages_questions_and_answers(data: Path) -> None:
    for split, file, size in (("train", "train", 456), ("dev", "val", 83)):
        rows = texts(data, "superglue/multirc", split)
        raw = [json.loads(line) for line in raw_lines(data / f"superglue/MultiRC/{file}.jsonl.gz")]
        assert len({row.at for row in rows}) == len(raw) == size
        questions = [question for line in raw for question in line["passage"]["questions"]]
        assert len({row.group for row in rows}) == len(questions)
        assert len(rows) == sum(len(question["answers"]) for question in questions)
        last = raw[-1]["passage"]["questions"][-1]
        assert rows[-1].pair == f"{last['question']} {last['answers'][-1]['text']}"
        assert rows[-1].label == str(last["answers"][-1]["label"])
        assert rows[-1].text == raw[-1]["passage"]["text"]


def test_marked_pieces_are_the_words_that_the_files_quote(data: Path) -> None:
    for split, file in (("train", "train"), ("dev", "val")):
        wsc = [json.loads(line) for line in raw_lines(data / f"superglue/WSC/{file}.jsonl.gz")]
        for row, line in zip(texts(data, "superglue/wsc", split), wsc, strict=True):
            for mark, span in zip(row.marks, ("span1_text", "span2_text"), strict=True):
                marked = row.text[mark.start : mark.end].lower().split()
                assert marked == line["target"][span].lower().split()


def test_multimnist_has_every_training_and_test_image(data: Path) -> None:
    task = find("multimnist/left", data)
    counted = {
        split: Counter(row.label for row in task.split(split).rows())  # type: ignore[union-attr]
        for split in ("train", "dev", "test")
    }
    assert {split: sum(labels.values()) for split, labels in counted.items()} == {
        "train": 50_000,
        "dev": 10_000,
        "test": 10_000,
    }
    both = counted["train"] + counted["dev"]
    # MNIST's published counts of its ten digits.
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert [both[str(digit)] for digit in range(10)] == train
    assert [counted["test"][str(digit)] for digit in range(10)] == test


def test_copa(data: Path) -> None:
    for split, file, size in (("train", "train", 400), ("dev", "val", 100)):
        rows: list[ChoiceRow] = list(find("superglue/copa", data).split(split).rows())  # type: ignore[arg-type]
        raw = [json.loads(line) for line in raw_lines(data / f"superglue/COPA/{file}.jsonl.gz")]
        assert len(rows) == len(raw) == size
        for row, line in zip(rows, raw, strict=True):
            assert row.text.startswith(line["premise"])
            assert row.choices == (line["choice1"], line["choice2"])
            assert row.label == line["label"]


def test_squad(data: Path) -> None:
    for split, size in (("train", 4330), ("dev", 1190)):
        rows: list[QuestionRow] = list(find("mrqa/squad", data).split(split).rows())  # type: ignore[arg-type]
        raw = json.loads(gzip.decompress((data / f"squad/{split}.json.gz").read_bytes()))
        paragraphs = [each for article in raw["data"] for each in article["paragraphs"]]
        assert len(rows) == sum(len(paragraph["qas"]) for paragraph in paragraphs) == size
        for row, paragraph, place in ((rows[0], paragraphs[0], 0), (rows[-1], paragraphs[-1], -1)):
            question = paragraph["qas"][place]
            assert (row.question, row.context) == (question["question"], paragraph["context"])
            assert row.answers == tuple(
                Answer(answer["text"], answer["answer_start"]) for answer in question["answers"]
            )


def test_wnut17(data: Path) -> None:
    for split, size in (("train", 3394), ("dev", 1009)):
        rows: list[WordsRow] = list(find("wnut17", data).split(split).rows())  # type: ignore[arg-type]
        assert len(rows) == size
        raw = raw_lines(data / f"wnut17/{split}.conll.gz")
        words = [line.split("\t") for line in raw if line.strip()]
        pairs = [pair for row in rows for pair in zip(row.words, row.tags or (), strict=True)]
        assert pairs == [tuple(each) for each in words]
        assert (rows[0].at, rows[0].words[0]) == (1, words[0][0])
        assert rows[-1].words[-1] == words[-1][0]


def passages(source: Source) -> set[str]:
    return {row.passage for row in source.rows()}  # type: ignore[union-attr]


def test_no_passage_of_multirc_is_held_out_in_part(data: Path) -> None:
    rest, held = hold_out(find("superglue/multirc", data).split("train"), 0.2)
    sides = [passages(rest), passages(held)]
    assert not sides[0] & sides[1]
    assert [len(side) for side in sides] == [365, 91]


def test_no_context_of_squad_is_held_out_in_part(data: Path) -> None:
    rest, held = hold_out(find("mrqa/squad", data).split("train"), 0.2)
    sides = [{row.context for row in each.rows()} for each in (rest, held)]  # type: ignore[union-attr]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == round(0.2 * 3902)


def test_a_sample_of_multirc_has_whole_questions(data: Path, tmp_path: Path) -> None:
    task = find("superglue/multirc", data)
    source = some_rows(task.split("dev"), 500)
    tokenizer = Tokenizer.train(islice(texts_of(source), 200), 2000, max_length=128)
    whole = Split(encode(task.kind, source, tokenizer, tmp_path), source)
    sizes = Counter(row.group for row in source.rows())  # type: ignore[union-attr]
    found = Counter(row.group for row in whole.at_most(30).source.rows())  # type: ignore[union-attr]
    assert found == {group: sizes[group] for group in found}
    assert 20 <= found.total() <= 30
    # Passages are long: hardly any row fits into 128 tokens.
    assert whole.items.cut > 0.95 * whole.items.rows
    assert whole.at_most(30).items.cut > 0.9 * found.total()


def texts_of(source: Source) -> Iterator[str]:
    return (row.text for row in source.rows())  # type: ignore[union-attr]


def test_own_copies_of_glue_files_show_whether_marks_are_text(data: Path) -> None:
    """QQP's file is quoted as in CSV, though the benchmark's readers take it as it is; no other."""
    for folder, *_ in GLUE.values():
        for path in (data / "glue" / folder).glob("*.tsv.gz"):
            assert is_quoted(path) == (folder == "QQP")
