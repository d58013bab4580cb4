import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmix.errors import UserError
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY
from taskmix.tasks.rows import TextRow
from taskmix.tasks.submissions import write_submission
from taskmix.tasks.task import Task


class Rows:
    where = "rows"

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    def rows(self) -> Iterator[TextRow]:
        return (TextRow(at, "text", id=id_) for at, id_ in enumerate(self.ids, start=2))

    def fingerprint(self) -> str:
        return ""


def task(name: str, *ids: str, split: str = "test") -> Task:
    return Task(name, Classify(("a", "b")), {split: Rows(*ids)}, (ACCURACY,))


def test_glue_takes_numbers_and_predictions_under_a_header(tmp_path: Path) -> None:
    rte = task("glue/rte", "0", "1")
    path = write_submission(tmp_path / "glue", rte, "test", ["entailment", "not_entailment"])
    assert path == tmp_path / "glue" / "RTE.tsv"
    assert path.read_text() == "index\tprediction\n0\tentailment\n1\tnot_entailment\n"


def test_rows_without_a_name_are_counted_from_zero(tmp_path: Path) -> None:
    path = write_submission(tmp_path, task("glue/sst2", "", ""), "test", ["0", "1"])
    assert path.read_text() == "index\tprediction\n0\t0\n1\t1\n"


def test_scores_stay_within_their_scale(tmp_path: Path) -> None:
    path = write_submission(
        tmp_path, task("glue/stsb", "0", "1", "2"), "test", [-1.0, 2.34567, 9.0]
    )
    assert path.read_text().splitlines()[1:] == ["0\t0.000", "1\t2.346", "2\t5.000"]


@pytest.mark.parametrize(
    ("split", "name"),
    [("test", "MNLI-m.tsv"), ("test_mismatched", "MNLI-mm.tsv"), ("diagnostic", "AX.tsv")],
)
def test_mnli_has_three_files(tmp_path: Path, split: str, name: str) -> None:
    mnli = task("glue/mnli", "0", split=split)
    assert write_submission(tmp_path, mnli, split, ["neutral"]).name == name


@pytest.mark.parametrize(
    ("name", "answer", "label"),
    [
        ("boolq", "true", "true"),
        ("wic", "false", "false"),
        ("wsc", "true", "True"),
        ("cb", "neutral", "neutral"),
        ("copa", 1, 1),
        ("record", "Tony Blair", "Tony Blair"),
    ],
)
def test_superglue_takes_one_mapping_a_row(
    tmp_path: Path, name: str, answer: object, label: object
) -> None:
    path = write_submission(tmp_path, task(f"superglue/{name}", "17"), "test", [answer])
    assert path.suffix == ".jsonl"
    assert json.loads(path.read_text()) == {"idx": 17, "label": label}


def test_multirc_answers_are_gathered_by_question_and_passage(tmp_path: Path) -> None:
    multirc = task("superglue/multirc", "0/0/0", "0/0/1", "0/1/2", "1/2/3")
    path = write_submission(tmp_path, multirc, "test", ["1", "0", "1", "0"])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "idx": 0,
            "passage": {
                "questions": [
                    {"idx": 0, "answers": [{"idx": 0, "label": 1}, {"idx": 1, "label": 0}]},
                    {"idx": 1, "answers": [{"idx": 2, "label": 1}]},
                ]
            },
        },
        {"idx": 1, "passage": {"questions": [{"idx": 2, "answers": [{"idx": 3, "label": 0}]}]}},
    ]


def test_mrqa_takes_one_mapping_of_ids_to_answers(tmp_path: Path) -> None:
    path = write_submission(tmp_path, task("mrqa/squad", "q1", "q2"), "test", ["1066", "Zoë"])
    assert path.name == "squad-test.json"
    assert json.loads(path.read_text()) == {"q1": "1066", "q2": "Zoë"}


def test_other_tasks_have_no_submission(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither GLUE nor SuperGLUE nor MRQA takes a file of it"):
        write_submission(tmp_path, task("mine", "0"), "test", ["a"])


def test_a_failed_write_leaves_the_previous_file_whole(tmp_path: Path) -> None:
    rte = task("glue/rte", "0", "1")
    path = write_submission(tmp_path, rte, "test", ["a", "b"])
    before = path.read_text()
    with pytest.raises(ValueError, match="zip"):
        write_submission(tmp_path, rte, "test", ["a"], force=True)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_is_overwritten_by_force_only(tmp_path: Path) -> None:
    (tmp_path / "RTE.tsv").write_text("mine")
    rte = task("glue/rte", "0", "1")
    with pytest.raises(UserError, match=r"RTE.tsv: expected no file, .* with --force"):
        write_submission(tmp_path, rte, "test", ["a", "b"])
    assert (tmp_path / "RTE.tsv").read_text() == "mine"
    write_submission(tmp_path, rte, "test", ["a", "b"], force=True)
    assert (tmp_path / "RTE.tsv").read_text() != "mine"
