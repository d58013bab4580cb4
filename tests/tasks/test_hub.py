from pathlib import Path
from typing import Any

import pytest

from taskmix.errors import UserError
from taskmix.tasks.files import from_files
from taskmix.tasks.hub import from_hub

datasets = pytest.importorskip("datasets")


def split(labels: list[int], names: tuple[str, ...] = ("no", "yes")) -> Any:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(names))}
    )
    columns = {"text": [f"text {i}" for i in range(len(labels))], "label": labels}
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture
def loaded() -> Any:
    return datasets.DatasetDict(
        train=split([1, 0, 1]), validation=split([0, 1]), test=split([-1, -1])
    )


def test_a_column_of_classes_gives_the_labels_their_names(loaded: Any) -> None:
    task = from_hub("h", hub=loaded, text="text", label="label")
    assert task.kind.spec()["labels"] == ["no", "yes"]
    assert [(row.at, row.label) for row in task.split("train").rows()] == [
        (1, "yes"),
        (2, "no"),
        (3, "yes"),
    ]


def test_a_data_set_saved_to_disk_is_the_same_task(loaded: Any, tmp_path: Path) -> None:
    loaded.save_to_disk(str(tmp_path / "saved"))
    direct = from_hub("h", hub=loaded, text="text", label="label", test="test")
    saved = from_hub("h", hub="saved", text="text", label="label", test="test", base=tmp_path)
    for name in ("train", "dev", "test"):
        assert list(saved.split(name).rows()) == list(direct.split(name).rows())
        assert saved.split(name).fingerprint() == direct.split(name).fingerprint()


def test_single_splits_are_own_tables(loaded: Any, tmp_path: Path) -> None:
    loaded["train"].save_to_disk(str(tmp_path / "train"))
    task = from_files(
        "h", train="train", dev=loaded["validation"], text="text", label="label", base=tmp_path
    )
    assert [row.label for row in task.split("train").rows()] == ["yes", "no", "yes"]
    assert [row.label for row in task.split("dev").rows()] == ["no", "yes"]


def test_hidden_labels_are_none_in_test_and_skipped_elsewhere(loaded: Any) -> None:
    loaded["train"] = split([1, -1, 0])
    task = from_hub("h", hub=loaded, text="text", label="label", test="test")
    assert [row.label for row in task.split("test").rows()] == [None, None]
    assert [row.at for row in task.split("train").rows()] == [1, 3]
    assert task.split("train").skips() == {"label -1": 1}


def test_content_names_the_split(loaded: Any) -> None:
    task = from_hub("h", hub=loaded, text="text", label="label")
    other = from_hub("h", hub={**loaded, "train": split([1, 0, 0])}, text="text", label="label")
    assert task.split("train").fingerprint() != other.split("train").fingerprint()
    assert task.split("dev").fingerprint() == other.split("dev").fingerprint()
    assert task.split("train").fingerprint() != task.split("dev").fingerprint()


def test_numbers_and_other_columns_work_as_in_files(loaded: Any) -> None:
    table = datasets.Dataset.from_dict({"a": ["x", "y"], "b": ["u", "v"], "score": [0.5, 2]})
    task = from_hub(
        "h", hub={"train": table, "validation": table}, kind="regress", text="a", pair="b",
        label="score",
    )  # fmt: skip
    assert [(row.text, row.pair, row.label) for row in task.split("dev").rows()] == [
        ("x", "u", 0.5),
        ("y", "v", 2.0),
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dev": "dev"}, r"no split 'dev'; splits found: train, validation, test"),
        ({"text": "txet"}, r"task h, split train: no column 'txet'; .*: 'text', 'label'; did you"),
        ({"label": "labels"}, r"no column 'labels'"),
    ],
)
def test_a_mistake_gets_one_sentence(loaded: Any, change: dict, sentence: str) -> None:
    given = {"text": "text", "label": "label"} | change
    with pytest.raises(UserError, match=sentence):
        list(from_hub("h", hub=loaded, **given).split("train").rows())


def test_a_split_without_rows_is_an_error(loaded: Any) -> None:
    task = from_hub("h", hub={**loaded, "validation": split([])}, text="text", label="label")
    with pytest.raises(UserError, match="has no rows"):
        list(task.split("dev").rows())


def test_a_folder_that_is_no_data_set_says_so(loaded: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a saved data set"):
        from_files("h", train=tmp_path, dev=loaded["validation"], text="text", label="label")


def test_one_split_is_no_whole_data_set(loaded: Any, tmp_path: Path) -> None:
    loaded["train"].save_to_disk(str(tmp_path / "one"))
    with pytest.raises(UserError, match="holds a single split"):
        from_hub("h", hub=tmp_path / "one", text="text", label="label")
    loaded.save_to_disk(str(tmp_path / "all"))
    with pytest.raises(UserError, match="holds several splits"):
        from_files("h", train=tmp_path / "all", dev=loaded["test"], text="text", label="label")
