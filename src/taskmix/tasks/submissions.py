"""Predictions in the files that the servers of GLUE and SuperGLUE and MRQA's script take."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.tasks.rows import Row
from taskmix.tasks.task import Task

GLUE_FILES: Mapping[tuple[str, str], str] = {
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
}
SUPERGLUE_FILES: Mapping[tuple[str, str], str] = {
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
    """Return where a submission goes; raise if there is a file already, or no benchmark takes one.

    Args:
        folder: where the benchmark's files are gathered.
        task: the task's name.
        split: of the task.
        force: whether a file that is there may be written over.
    """
    path = folder / _file(task, split)
    if path.exists() and not force:
        raise UserError(
            f"{path}: expected no file, found one; choose another folder with --out, or overwrite "
            "it with --force"
        )
    return path


def write_submission(
    folder: Path, task: Task, split: str, answers: Sequence[Any], *, force: bool = False
) -> Path:
    """Write the predictions of a split; the file is there whole or not at all.

    Args:
        folder: where the benchmark's files are gathered.
        task: a task of GLUE, SuperGLUE or MRQA.
        split: `test`, and for MNLI also `test_mismatched` and `diagnostic`; any split for MRQA,
            whose script scores on one's own machine.
        answers: what the task's kind answers for each row, in the rows' order.
        force: whether a file that is there may be written over.
    """
    path = submission_file(folder, task.name, split, force=force)
    pairs = zip(_ids(task.split(split).rows()), answers, strict=True)
    if path.suffix == ".jsonl":
        lines = _SUPERGLUE_LINES.get(task.name, superglue_lines)(pairs)
    else:
        lines = mrqa_lines(pairs) if path.suffix == ".json" else glue_lines(pairs)
    write_whole(path, "".join(f"{line}\n" for line in lines))
    return path


def _file(task: str, split: str) -> str:
    """Return the name of a submission file; raise if no benchmark takes one."""
    if task.startswith(MRQA):
        return f"{task.removeprefix(MRQA)}-{split}.json"
    files = {**GLUE_FILES, **SUPERGLUE_FILES}
    if (task, split) not in files:
        raise UserError(
            f"task {task}, split {split}: neither GLUE nor SuperGLUE nor MRQA takes a file of it."
        )
    return files[task, split]


def glue_lines(pairs: Pairs) -> Iterator[str]:
    r"""Yield a header, then a row's number and its prediction; STS-B's scores within 0 and 5.

    >>> list(glue_lines([("0", "entailment"), ("1", 5.25)]))
    ['index\tprediction', '0\tentailment', '1\t5.000']
    """
    yield "index\tprediction"
    for row, answer in pairs:
        number = isinstance(answer, float)
        yield f"{row}\t{min(max(answer, 0.0), 5.0):.3f}" if number else f"{row}\t{answer}"


def superglue_lines(pairs: Pairs) -> Iterator[str]:
    """Yield one JSON mapping a row.

    >>> list(superglue_lines([("0", "true")]))
    ['{"idx": 0, "label": "true"}']
    """
    for row, answer in pairs:
        yield json.dumps({"idx": int(row), "label": answer})


def mrqa_lines(pairs: Pairs) -> Iterator[str]:
    """Yield one JSON mapping of all questions' ids to their answers.

    >>> list(mrqa_lines([("q1", "1066"), ("q2", "the moon")]))
    ['{"q1": "1066", "q2": "the moon"}']
    """
    yield json.dumps(dict(pairs), ensure_ascii=False)


def capitalised_lines(pairs: Pairs) -> Iterator[str]:
    """As WSC wants its truth values.

    >>> list(capitalised_lines([("0", "true")]))
    ['{"idx": 0, "label": "True"}']
    """
    return superglue_lines((row, answer.capitalize()) for row, answer in pairs)


def multirc_lines(pairs: Pairs) -> Iterator[str]:
    """Yield one JSON mapping a passage, with its questions and their answers.

    >>> list(multirc_lines([("0/1/2", "1")]))
    ['{"idx": 0, "passage": {"questions": [{"idx": 1, "answers": [{"idx": 2, "label": 1}]}]}}']
    """
    split = ([*map(int, row.split("/")), int(answer)] for row, answer in pairs)
    for passage, questions in groupby(split, key=lambda each: each[0]):
        found = [
            {"idx": question, "answers": [{"idx": a, "label": label} for *_, a, label in answers]}
            for question, answers in groupby(questions, key=lambda each: each[1])
        ]
        yield json.dumps({"idx": passage, "passage": {"questions": found}})


_SUPERGLUE_LINES: Mapping[str, Callable[[Pairs], Iterator[str]]] = {
    "superglue/wsc": capitalised_lines,
    "superglue/multirc": multirc_lines,
}


def _ids(rows: Iterator[Row]) -> Iterator[str]:
    """Yield the name of each row in its file, or its number from 0 where it has none."""
    for number, row in enumerate(rows):
        yield getattr(row, "id", "") or str(number)
