import gzip
import json
from pathlib import Path

import pytest

from taskmix.errors import UserError
from taskmix.tasks.files import from_files, inputs
from taskmix.tasks.rows import Answer, ChoiceRow, QuestionRow, TextRow, WordsRow

ROWS = [("so good", "+"), ("so bad", "-"), ("fine", "+")]


def csv(folder: Path, name: str = "mine.csv", rows: list[tuple[str, str]] = ROWS) -> Path:
    path = folder / name
    path.write_text("sentence,y\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


def test_labels_are_those_of_the_training_split(tmp_path: Path) -> None:
    task = from_files("mine", train=csv(tmp_path), dev=csv(tmp_path), text="sentence", label="y")
    assert task.kind.spec()["labels"] == ["+", "-"]
    assert [metric.name for metric in task.metrics] == ["accuracy"]
    assert next(iter(task.split("dev").rows())) == TextRow(2, "so good", label="+")


def test_labels_that_are_numbers_stand_by_size(tmp_path: Path) -> None:
    path = csv(tmp_path, rows=[("a", "10"), ("b", "2"), ("c", "-1")])
    task = from_files("mine", train=path, dev=path, text="sentence", label="y")
    assert task.kind.spec()["labels"] == ["-1", "2", "10"]


def test_given_labels_keep_their_order(tmp_path: Path) -> None:
    path = csv(tmp_path)
    task = from_files("m", train=path, dev=path, text="sentence", label="y", labels=["-", "+"])
    assert task.kind.spec()["labels"] == ["-", "+"]


def test_rows_without_a_label_are_left_out_of_train_and_dev_but_not_of_test(tmp_path: Path) -> None:
    path = csv(tmp_path, rows=[("a", "+"), ("b", ""), ("c", "-")])
    places = {"train": path, "dev": path, "test": path}
    task = from_files("m", **places, text="sentence", label="y", missing="skip")
    assert task.kind.spec()["labels"] == ["+", "-"]
    counts = [len(list(task.split(split).rows())) for split in places]
    assert counts == [2, 2, 3]
    assert task.split("dev").skips() == {"no label": 1}
    with pytest.raises(UserError, match=r"row 3: column 'y' holds '', .*; `missing: skip` leaves"):
        from_files("m", train=path, dev=path, text="sentence", label="y")


def test_missing_labels_are_skipped_only_if_they_are_one_class_or_number(tmp_path: Path) -> None:
    path = csv(tmp_path)
    options = {"train": path, "dev": path, "text": "sentence", "label": "y"}
    with pytest.raises(UserError, match="task m: missing: expected a kind whose label is one"):
        from_files("m", kind="multilabel", missing="skip", **options)
    with pytest.raises(
        UserError, match="task m: missing: unknown value 'skp'; did you mean 'skip'"
    ):
        from_files("m", missing="skp", **options)  # type: ignore[arg-type] # the mistake


def test_relative_paths_are_relative_to_the_base(tmp_path: Path) -> None:
    csv(tmp_path)
    task = from_files(
        "m", train="mine.csv", dev="mine.csv", text="sentence", label="y", base=tmp_path
    )
    assert len(list(task.split("train").rows())) == 3


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_task(tmp_path: Path, suffix: str, packed: bool) -> None:
    path = tmp_path / f"mine.{suffix}"
    if suffix == "parquet":
        if packed:
            return
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        columns = zip(*ROWS, strict=True)
        pq.write_table(
            pa.table(dict(zip(("sentence", "y"), map(list, columns), strict=True))), path
        )
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps({"sentence": s, "y": y}) + "\n" for s, y in ROWS))
    else:
        between = {"csv": ",", "tsv": "\t"}[suffix]
        path.write_text("".join(f"{between.join(row)}\n" for row in [("sentence", "y"), *ROWS]))
    if packed:
        path.with_suffix(f".{suffix}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = path.with_suffix(f".{suffix}.gz")
    task = from_files("mine", train=path, dev=path, text="sentence", label="y")
    assert [(row.text, row.label) for row in task.split("train").rows()] == ROWS


def test_a_number_is_regressed_on(tmp_path: Path) -> None:
    path = csv(tmp_path, rows=[("a", "1.5"), ("b", "2")])
    task = from_files("m", kind="regress", train=path, dev=path, text="sentence", label="y")
    assert [row.label for row in task.split("train").rows()] == [1.5, 2.0]
    assert [metric.name for metric in task.metrics] == ["pearson", "spearman"]


@pytest.mark.parametrize("value", ["high", "nan", "inf", ""])
def test_what_is_no_number_names_file_and_row(tmp_path: Path, value: str) -> None:
    path = csv(tmp_path, rows=[("a", "1.5"), ("b", value)])
    task = from_files("m", kind="regress", train=path, dev=path, text="sentence", label="y")
    with pytest.raises(
        UserError, match=r"mine\.csv, row 3: column 'y' holds .*, expected a number"
    ):
        list(task.split("train").rows())


def test_all_wrong_rows_of_a_file_are_counted_in_one_sentence(tmp_path: Path) -> None:
    rows = [("a", "1"), ("b", ""), ("c", "n/a"), ("d", "2"), ("e", "x")]
    path = csv(tmp_path, rows=rows)
    task = from_files("mine", train=path, dev=path, text="sentence", label="y", kind="regress")
    with pytest.raises(UserError) as caught:
        list(task.split("train").rows())
    assert str(caught.value) == (
        f"{path}, row 3: column 'y' holds '', expected a number; `missing: skip` leaves such rows "
        "out. The same with 2 more rows: 4, 6; correct or remove them."
    )


def test_a_missing_column_is_one_of_the_whole_file_and_names_the_nearest(tmp_path: Path) -> None:
    path = csv(tmp_path)
    with pytest.raises(UserError) as caught:
        from_files("mine", train=path, dev=path, text="sentence", label="Y")
    assert str(caught.value) == (
        f"task mine: {path}: no column 'Y'; columns found: 'sentence', 'y'; did you mean 'y'?"
    )


def test_rows_in_memory_can_be_predicted(tmp_path: Path) -> None:
    task = from_files("mine", train=csv(tmp_path), dev=csv(tmp_path), text="sentence", label="y")
    source = inputs(task, [{"sentence": "so good"}])
    assert list(source.rows()) == [TextRow(1, "so good")]
    assert source.fingerprint() != inputs(task, [{"sentence": "so bad"}]).fingerprint()
    with pytest.raises(UserError, match="rows, row 1: no column 'sentence'; columns found: 'text'"):
        list(inputs(task, [{"text": "so good"}]).rows())


def test_a_test_split_may_do_without_labels(tmp_path: Path) -> None:
    path = csv(tmp_path)
    bare = tmp_path / "bare.csv"
    bare.write_text("sentence\nhello\n")
    task = from_files("m", train=path, dev=path, test=bare, text="sentence", label="y")
    assert list(task.split("test").rows()) == [TextRow(2, "hello")]
    labelled = from_files("m", train=path, dev=path, test=path, text="sentence", label="y")
    assert next(labelled.split("test").rows()).label == "+"


def test_a_file_to_predict_has_the_columns_of_the_task(tmp_path: Path) -> None:
    task = from_files("m", train=csv(tmp_path), dev=csv(tmp_path), text="sentence", label="y")
    path = tmp_path / "new.jsonl"
    path.write_text('{"sentence": "hello"}\n')
    assert list(inputs(task, path).rows()) == [TextRow(1, "hello")]
    with pytest.raises(UserError, match="no such file"):
        inputs(task, tmp_path / "absent.csv")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"train": "absent.csv"}, r"task m: .*absent\.csv: no such file"),
        ({"text": "sentense"}, r"mine\.csv: no column 'sentense'; .*: 'sentence', 'y'; did you"),
        ({"label": "z"}, r"no column 'z'"),
        ({"pair": "z"}, r"no column 'z'"),
        ({"kind": "clasify"}, r"task m: unknown kind 'clasify'; did you mean 'classify'\?"),
        ({"metrics": ["acuracy"]}, r"unknown metric 'acuracy'; did you mean 'accuracy'\?"),
        ({"metrics": "accuracy"}, r"metrics: expected a list, found 'accuracy'"),
        ({"labels": "+-"}, r"labels: expected a list, found '\+-'"),
        ({"format": "cvs"}, r"unknown format 'cvs'"),
        ({"dev": "mine.txt"}, r"its name does not say its format; give format: one of csv, tsv"),
        ({"dev": 5}, r"task m: expected a file or a data set, found 5"),
        ({"train": "one.csv"}, r"one\.csv has the labels \['\+'\], expected two or more"),
        ({"train": "empty.csv"}, r"empty\.csv: has no rows"),
    ],
)
def test_a_mistake_gets_one_sentence(tmp_path: Path, change: dict, sentence: str) -> None:
    csv(tmp_path)
    csv(tmp_path, "mine.txt")
    csv(tmp_path, "one.csv", ROWS[:1])
    csv(tmp_path, "empty.csv", [])
    given = {"train": "mine.csv", "dev": "mine.csv", "text": "sentence", "label": "y"} | change
    with pytest.raises(UserError, match=sentence) as caught:
        from_files("m", base=tmp_path, **given)
    assert "\n" not in str(caught.value)


def lines(folder: Path, *values: dict[str, object]) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_several_classes_a_row(tmp_path: Path) -> None:
    labels = (["b", "a"], [], "a, c")
    path = lines(tmp_path, *({"t": "text", "y": each} for each in labels))
    task = from_files("m", kind="multilabel", train=path, dev=path, text="t", label="y")
    assert task.kind.spec()["labels"] == ["a", "b", "c"]
    assert [row.label for row in task.split("dev").rows()] == [("b", "a"), (), ("a", "c")]
    assert [metric.name for metric in task.metrics] == ["micro_f1"]


def test_a_tag_for_each_word(tmp_path: Path) -> None:
    path = lines(tmp_path, {"w": ["Ann", "ran"], "y": ["noun", "verb"]})
    task = from_files(
        "m", kind="tag", train=path, dev=path, text="w", label="y", metrics=["accuracy"]
    )
    assert task.kind.spec()["labels"] == ["noun", "verb"]
    assert list(task.split("dev").rows()) == [WordsRow(1, ("Ann", "ran"), ("noun", "verb"))]
    conll = tmp_path / "mine.conll"
    conll.write_text("Ann\tnoun\nran\tverb\n")
    task = from_files("m", kind="tag", train=conll, dev=path, text="words", label="tags")
    assert list(task.split("train").rows()) == [WordsRow(1, ("Ann", "ran"), ("noun", "verb"))]


def test_words_and_tags_must_be_equally_many(tmp_path: Path) -> None:
    path = lines(tmp_path, {"w": ["Ann", "ran"], "y": ["noun"]})
    with pytest.raises(UserError, match=r"mine\.jsonl, row 1: 1 tags for 2 words"):
        from_files("m", kind="tag", train=path, dev=path, text="w", label="y")


@pytest.mark.parametrize(
    "answers",
    [
        [["cat", 4]],
        [{"text": "cat", "answer_start": 4}],
        {"text": ["cat"], "answer_start": [4]},
        {"text": "cat", "answer_start": 4},
        [["cat", "4"]],
        [["cat", 4.0]],
        "cat",
        ["cat"],
    ],
)
def test_a_span_of_a_context(tmp_path: Path, answers: object) -> None:
    path = lines(tmp_path, {"q": "who?", "c": "the cat", "a": answers})
    task = from_files("m", kind="span", train=path, dev=path, text="q", pair="c", label="a")
    expected = QuestionRow(1, "who?", "the cat", (Answer("cat", 4),))
    assert list(task.split("dev").rows()) == [expected]
    assert task.kind.spec()["no_answer"] is False


def test_a_question_without_an_answer_allows_for_none(tmp_path: Path) -> None:
    path = lines(tmp_path, {"q": "who?", "c": "the cat", "a": []})
    task = from_files("m", kind="span", train=path, dev=path, text="q", pair="c", label="a")
    assert task.kind.spec()["no_answer"] is True


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ("dog", "answer 'dog' does not stand in the context"),
        (
            [["cat", 3]],
            "answer 'cat' does not stand at answer_start 3: found ' ca' there; it stands at 4",
        ),
        ([["dog", 4]], "found 'cat' there; it stands nowhere in the context"),
        ([["cat", 99]], "at answer_start 99: found '' there; it stands at 4"),
        ([["cat", -3]], "answer 'cat': answer_start is -3, expected a whole number from 0"),
        ([["cat", None]], "answer_start is None, expected a whole number"),
        ([["cat", 4.5]], "answer_start is 4.5, expected a whole number"),
        (5, "answer 5: expected a text, or a text and its answer_start"),
        ([{}], "answer {}: expected a text, or a text and its answer_start"),
        ([""], "answer '': expected a text"),
        ({"text": ["cat"], "answer_start": []}, "1 answers, but 0 places"),
        ({"text": ["cat"], "answer_start": [4], "accepted": [5]}, "column 'accepted' holds 5"),
        (None, "column 'a' holds None, expected answers"),
        ("", "column 'a' holds '', expected answers"),
    ],
)
def test_an_answer_that_is_not_there_says_what_is(
    tmp_path: Path, answers: object, sentence: str
) -> None:
    path = lines(tmp_path, {"q": "who?", "c": "the cat", "a": answers})
    with pytest.raises(UserError) as caught:
        from_files("m", kind="span", train=path, dev=path, text="q", pair="c", label="a")
    assert "mine.jsonl, row 1: " in str(caught.value)
    assert sentence in str(caught.value)


def test_a_choice_among_columns_or_in_a_list(tmp_path: Path) -> None:
    path = lines(tmp_path, {"t": "so", "a": "yes", "b": "no", "all": ["yes", "no"], "y": 1})
    for choices in (["a", "b"], ["all"]):
        task = from_files(
            "m", kind="choose", train=path, dev=path, text="t", choices=choices, label="y"
        )
        assert list(task.split("dev").rows()) == [ChoiceRow(1, "so", ("yes", "no"), 1)]


@pytest.mark.parametrize(("kind", "word"), [("span", "pair"), ("choose", "choices")])
def test_a_kind_says_which_column_it_needs(tmp_path: Path, kind: str, word: str) -> None:
    with pytest.raises(UserError, match=f"a {kind} task needs `{word}`"):
        from_files(
            "m", kind=kind, train=csv(tmp_path), dev=csv(tmp_path), text="sentence", label="y"
        )
