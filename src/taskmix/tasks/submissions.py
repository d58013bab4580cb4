"""Submission files for the servers of GLUE and SuperGLUE and for MRQA's script."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.tasks.rows import Row
from taskmix.tasks.task import Task

FILES: Mapping[tuple[str, str], str] = {
    ("glue/cola", "test"): "CoLA.tsv",
    ("glue/sst2", "test"): "SST-2.tsv",
    ("glue/mrpc", "test"): "MRPC.tsv",
    ("glue/stsb", "test"): "STS-B.tsv",
    ("glue/qqp", "test"): "QQP.tsv",
    ("glue/mnli", "test"): "MNLI-m.tsv",
    ("glue/mnli", "test_mismatched"): "MNLI-mm.tsv",
    ("glue/mnli", "diagnostic"): "AX.tsv",
    ("glue/qnli", "test"): "QNLI.tsv",
    ("glue/rte", "test"): "RTE.tsv",
    ("glue/wnli", "test"): "WNLI.tsv",
    ("superglue/boolq", "test"): "BoolQ.jsonl",
    ("superglue/cb", "test"): "CB.jsonl",
    ("superglue/copa", "test"): "COPA.jsonl",
    ("superglue/multirc", "test"): "MultiRC.jsonl",
    ("superglue/record", "test"): "ReCoRD.jsonl",
    ("superglue/rte", "test"): "RTE.jsonl",
    ("superglue/wic", "test"): "WiC.jsonl",
    ("superglue/wsc", "test"): "WSC.jsonl",
}
MRQA = "mrqa/"
Pairs = Iterable[tuple[str, Any]]


def submission_file(folder: Path, task: str, split: str, *, force: bool = False) -> Path:
    """Return the path of a submission; raise if it exists, or no benchmark takes one."""
    if task.startswith(MRQA):
        path = folder / f"{task.removeprefix(MRQA)}-{split}.json"
    elif (task, split) in FILES:
        path = folder / FILES[task, split]
    else:
        raise UserError(
            f"task {task}, split {split}: neither GLUE nor SuperGLUE nor MRQA takes a file of it."
        )
    if path.exists() and not force:
        raise UserError(
            f"{path}: expected no file, found one; choose another folder with --out, or overwrite "
            "it with --force"
        )
    return path


def write_submission(
    folder: Path, task: Task, split: str, answers: Sequence[Any], *, force: bool = False
) -> Path:
    """Write the predictions of a split atomically."""
    path = submission_file(folder, task.name, split, force=force)
    pairs = zip(_ids(task.split(split).rows()), answers, strict=True)
    if path.suffix == ".jsonl":
        lines = _SUPERGLUE_LINES.get(task.name, superglue_lines)(pairs)
    else:
        lines = mrqa_lines(pairs) if path.suffix == ".json" else glue_lines(pairs)
    write_whole(path, "".join(f"{line}\n" for line in lines))
    return path


def glue_lines(pairs: Pairs) -> Iterator[str]:
    yield "index\tprediction"
    for row, answer in pairs:
        if isinstance(answer, float):
            answer = f"{min(max(answer, 0.0), 5.0):.3f}"  # scores of STS-B are from 0 to 5
        yield f"{row}\t{answer}"


def superglue_lines(pairs: Pairs) -> Iterator[str]:
    for row, answer in pairs:
        yield json.dumps({"idx": int(row), "label": answer})


def mrqa_lines(pairs: Pairs) -> Iterator[str]:
    yield json.dumps(dict(pairs), ensure_ascii=False)


def capitalised_lines(pairs: Pairs) -> Iterator[str]:
    """Yield the lines of WSC, whose labels are `True` and `False`."""
    return superglue_lines((row, answer.capitalize()) for row, answer in pairs)


def multirc_lines(pairs: Pairs) -> Iterator[str]:
    """Yield one JSON mapping a passage; a row's id is passage, question and answer."""
    split = ([*map(int, row.split("/")), int(answer)] for row, answer in pairs)
    for passage, questions in groupby(split, key=lambda row: row[0]):
        answered = [
            {"idx": question, "answers": [{"idx": a, "label": label} for *_, a, label in answers]}
            for question, answers in groupby(questions, key=lambda row: row[1])
        ]
        yield json.dumps({"idx": passage, "passage": {"questions": answered}})


_SUPERGLUE_LINES: Mapping[str, Callable[[Pairs], Iterator[str]]] = {
    "superglue/wsc": capitalised_lines,
    "superglue/multirc": multirc_lines,
}


def _ids(rows: Iterator[Row]) -> Iterator[str]:
    """Yield the id of each row, or its number from 0 if it has none."""
    for number, row in enumerate(rows):
        yield getattr(row, "id", "") or str(number)
