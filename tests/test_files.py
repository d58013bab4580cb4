"""The cache is what was written or is built again; JSON is read or refused with one sentence."""

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import taskmix as library
from taskmix.errors import TaskmixError, UserError
from taskmix.files import CHECKSUMS, cached, parse_json, read_json
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import Corpus, tokenizer_for
from taskmix.tasks.encoding import encode
from taskmix.tasks.files import from_files
from taskmix.tasks.parts import rows_of


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A run that uses the caches of facts, sizes, vocabularies and encoded splits."""
    monkeypatch.setenv("TASKMIX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "mood.csv"
    rows = [f"a {('good', 'bad')[n % 2]} thing number {n},{('+', '-')[n % 2]}" for n in range(24)]
    path.write_text("text,mood\n" + "\n".join(rows))
    task = {"name": "mood", "train": str(path), "held_out": 0.25, "text": "text", "label": "mood"}
    size = {"width": 8, "attention_heads": 1, "layers": 2, "vocabulary": 64, "max_length": 8}
    return {
        "tasks": [task],
        "model": {"encoder": "small", **size},
        "budget": {"steps": 4, "batch": 4},
        "optimizer": {"lr": 0.01},
    }


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1
    path.write_bytes(content)


def test_every_damaged_entry_of_the_cache_is_built_again_and_said(
    config: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = library.run(config, tmp_path / "first")
    files = sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    names = {path.name for path in files}
    assert {"labels.bin", "tokenizer.json", "counts.npz", "fact.json"} <= names
    for path in files:
        flip(path, -1)
    caplog.clear()
    again = library.run(config, tmp_path / "again")
    assert again == first
    assert sorted(message for message in caplog.messages if "built again" in message) == [
        f"{folder}: found other bytes than were written; it is built again"
        for folder in sorted({path.parent for path in files})
    ]
    caplog.clear()
    assert library.run(config, tmp_path / "third") == first
    assert not caplog.messages


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "a").write_text("other"),
        lambda folder: (folder / "a").unlink(),
        lambda folder: (folder / "b").write_text("more"),
        lambda folder: (folder / CHECKSUMS).unlink(),
        lambda folder: (folder / CHECKSUMS).write_text("[" * 100_000),
        lambda folder: (folder / CHECKSUMS).write_text('{"a": 1e999}'),
    ],
)
def test_an_entry_is_what_was_built(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    def entry() -> str:
        return cached(
            tmp_path / "entry",
            lambda aside: (aside / "a").write_text("built"),
            lambda folder: (folder / "a").read_text(),
        )

    assert entry() == "built"
    damage(tmp_path / "entry")
    assert entry() == "built"
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]  # nothing is left beside it


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may be longer than this; the system's error is that of a quota."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    config: dict[str, Any], tmp_path: Path
) -> None:
    """Each cache in turn is the one whose disk is full."""
    entry = config["tasks"][0]
    options = {key: entry[key] for key in ("train", "text", "label")}
    task = from_files("mood", dev=entry["train"], **options)
    texts = Corpus("x", lambda: ["a good thing"] * 3)
    small = ModelSpec(encoder="small", vocabulary=64, max_length=8)
    tokenizer = tokenizer_for(small, texts, tmp_path / "other")
    for write in (
        lambda: from_files("x", dev=entry["train"], **options, kind="classify"),
        lambda: rows_of(task.split("train"), tmp_path / "full"),
        lambda: tokenizer_for(small, texts, tmp_path / "full"),
        lambda: encode(task.kind, task.split("train"), tokenizer, tmp_path / "full"),
    ):
        for left in (tmp_path / "cache" / "found").glob("*/*"):
            left.unlink()
        with full_disk(4), pytest.raises(TaskmixError, match=r"cache cannot be written \(File too"):
            write()
    assert not [path for path in (tmp_path / "full").rglob("*") if path.is_file()]


HOSTILE = {
    "deep": "[" * 100_000,
    "deep mappings": '{"a":' * 100_000,
    "another encoding": b"\xff\xfe{}",
    "not a number": '{"a": NaN}',
    "infinite": '{"a": -Infinity}',
    "overflow": '{"a": 1e999}',
    "a large integer": '{"a": 123456789012345678901}',
    "a huge integer": f'{{"a": {"9" * 10_000}}}',
    "torn": '{"a": ',
    "empty": "",
    "a list": "[1]",
    "a text": '"x"',
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_one_short_sentence(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=r"a.json: expected a thing, found ") as caught:
        read_json(path, "a thing")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 120


def test_a_file_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a.json: expected a thing, No such file"):
        read_json(tmp_path / "a.json", "a thing")


def test_whatever_is_written_is_read() -> None:
    values = {"a": [1, -1, 2**64 - 1, -(2**63)], "b": {"c": [0.1, -1e-300, 1e308, None, True, "é"]}}
    assert parse_json(json.dumps(values)) == values
    assert parse_json("[NaN, 1e999, 123456789012345678901]", any_number=True)[1:] == [
        float("inf"),
        123456789012345678901,
    ]
