"""What docs/tasks.md says of files is so."""

import re
import tomllib
from pathlib import Path

import pytest

from taskmix.tasks.catalogue import ENTRIES
from taskmix.tasks.catalogue.entry import FilesEntry
from taskmix.tasks.files import from_files
from taskmix.tasks.readers import Jsonl
from taskmix.tasks.rows import Answer, QuestionRow, TextRow
from taskmix.tasks.shapes import Questions, Texts
from taskmix.tasks.sources import FileSource
from taskmix.tasks.submissions import FILES

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()


def shown(tmp_path: Path, key: str) -> Path:
    """The page's JSON lines that begin with a key, as a file."""
    path = tmp_path / "shown.jsonl"
    lines = [line for line in PAGE.splitlines() if line.startswith(f'{{"{key}"')]
    path.write_text("\n".join(lines))
    return path


def test_every_form_of_answers_is_read(tmp_path: Path) -> None:
    source = FileSource(shown(tmp_path, "q"), Jsonl(), Questions("q", "c", "a"))
    bob = (Answer("Bob", 7),)
    rows = [(row.answers, row.accepted) for row in source.rows() if isinstance(row, QuestionRow)]
    assert rows == [(bob, None), (bob, None), (bob, ("Bob", "Robert")), (bob, None), ((), None)]


def test_every_form_of_several_classes_is_read(tmp_path: Path) -> None:
    shape = Texts("text", label="topics", holds="names")
    source = FileSource(shown(tmp_path, "text"), Jsonl(), shape)
    rows = [row.label for row in source.rows() if isinstance(row, TextRow)]
    assert rows == [("delivery", "price")] * 2


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if isinstance(e, FilesEntry)], ids=lambda entry: entry.name
)
def test_every_layout_is_on_the_page(entry: FilesEntry) -> None:
    for layout in entry.layouts:
        folder = layout.folders[0].split("/")[-1]
        assert folder in PAGE
        file = layout.files["train"].split("/")[-1]
        assert f"`{file}`" in PAGE or file.rsplit(".", 1)[0] in PAGE


def test_every_submission_file_is_on_the_page() -> None:
    for file in FILES.values():
        assert f"`{file}`" in PAGE


def test_tags_that_mark_no_entities_are_scored_by_accuracy(tmp_path: Path) -> None:
    (tmp_path / "pos.conll").write_text("a\tDET\ndog\tNOUN\n\nit\tPRON\nran\tVERB\n\n")
    (tmp_path / "ner.conll").write_text("in\tO\nRome\tB-place\n\nin\tO\nOslo\tB-place\n\n")
    names = {}
    for name in ("pos", "ner"):
        path = tmp_path / f"{name}.conll"
        task = from_files(name, kind="tag", train=path, dev=path, text="words", label="tags")
        names[name] = [metric.name for metric in task.metrics]
    assert names == {"pos": ["accuracy"], "ner": ["entity_f1"]}


def test_the_install_line_of_the_readme_names_what_is_there() -> None:
    home = Path(__file__).parents[2]
    line = r"pip install -c constraints.txt '\.\[(.*?)\]'    # '\.\[(.*?)\]'"
    found = re.search(line, (home / "README.md").read_text())
    assert found is not None
    assert (home / "constraints.txt").exists()
    project = tomllib.loads((home / "pyproject.toml").read_text())["project"]
    assert {*found[1].split(","), *found[2].split(",")} <= set(project["optional-dependencies"])
