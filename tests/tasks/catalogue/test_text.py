"""The text domains are texts of other tasks' files, as they stand there."""

from collections import Counter
from pathlib import Path

import pytest

from taskmix.errors import UserError
from taskmix.tasks.catalogue import find
from taskmix.tasks.catalogue.text import TEXT
from taskmix.tasks.files import inputs
from taskmix.tasks.kinds import Generate
from taskmix.tasks.rows import PromptRow

QNLI = (
    "index\tquestion\tsentence\tlabel\n"
    "0\tWho was it?\tIt was a very long story about Bob.\tentailment\n"
    "1\tWho?\tNobody else in the whole town knew of it.\tnot_entailment\n"
)


QQP = "id\tquestion1\tquestion2\tis_duplicate\n0\tWhy?\tHow?\t1\nbroken\n2\t \tWho?\t0\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for folder, text in {
        "glue/QNLI": QNLI,
        "glue/QQP": QQP,
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        for split in ("train", "dev"):
            (tmp_path / folder / f"{split}.tsv").write_text(text)
    (tmp_path / "wnut17").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "wnut17" / f"{split}.conll").write_text("so\tO\nit\tO\ngoes\tO\n\n")
    return tmp_path


def texts(name: str, data: Path, split: str = "train") -> list[str | None]:
    rows = list(find(name, data).split(split).rows())
    assert all(isinstance(row, PromptRow) and row.prompt == "" for row in rows)
    return [row.answer for row in rows if isinstance(row, PromptRow)]


def test_texts_are_those_of_the_other_task(data: Path) -> None:
    first, second = (
        "It was a very long story about Bob.",
        "Nobody else in the whole town knew of it.",
    )
    assert texts("text/wikipedia", data) == [first, second]
    assert texts("text/tweets", data) == ["so it goes"]
    assert texts("text/questions2", data) == ["How?", "Who?"]


def test_rows_without_a_text_are_skipped_and_counted(data: Path) -> None:
    assert texts("text/questions", data) == ["Why?"]
    skips = find("text/questions", data).split("train").skips()
    assert skips == {"too few columns": 1, "no text": 1}


def test_noise_has_the_words_of_real_texts_in_another_order(data: Path) -> None:
    real, noise = texts("text/wikipedia", data), texts("text/noise", data)
    for one, other in zip(real, noise, strict=True):
        assert one is not None
        assert other is not None
        assert one != other
        assert Counter(one.split()) == Counter(other.split())
    assert noise == texts("text/noise", data)
    task = find("text/noise", data)
    assert (
        task.split("train").fingerprint()
        != find("text/wikipedia", data).split("train").fingerprint()
    )


def test_a_file_of_beginnings_is_gone_on_from(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.tsv"
    path.write_text("index\tquestion\tsentence\n0\tWho?\tOnce upon\n")
    [row] = inputs(find("text/wikipedia", data), path).rows()
    assert row == PromptRow(2, "Once upon")


def test_the_template_needs_no_files() -> None:
    task = find("text/template")
    rows = {split: list(task.split(split).rows()) for split in ("train", "dev")}
    assert {split: len(each) for split, each in rows.items()} == {"train": 2000, "dev": 300}
    assert rows["train"] == list(task.split("train").rows())
    assert rows["train"][:300] != rows["dev"]


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"task text/captions: no file .*train\.jsonl"):
        find("text/captions", tmp_path).split("train").rows()


def test_there_are_twelve_domains() -> None:
    assert len(TEXT) == 12
    assert all(entry.kind == Generate() for entry in TEXT)
