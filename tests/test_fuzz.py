"""Hostile run files, options, journals, checkpoints, changes, models, caches and data files.

Whatever is made up here, the answer is a result or one sentence (`TaskmixError`): no traceback, and
nothing that was asked is changed without a word. TASKMIX_FUZZ=10 takes ten times as many examples,
other ones each time.
"""

import csv
import inspect
import io
import json
import os
import resource
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import taskmix as library
from taskmix.config import RunConfig, build_decider, dump, load, parse, read_value
from taskmix.errors import TaskmixError, UserError
from taskmix.families import FAMILIES
from taskmix.files import hash_of
from taskmix.journal import read, repair
from taskmix.models import saving
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import Corpus, tokenizer_for
from taskmix.report.comparison_body import comparison_body
from taskmix.report.run_body import run_body
from taskmix.report.run_data import read_run
from taskmix.run_info import RunInfo
from taskmix.tasks.encoding import encode
from taskmix.tasks.files import FORMATS, from_files
from taskmix.tasks.parts import counted
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.training import checkpoints
from taskmix.training.assembly import assemble
from taskmix.training.change import complete_change
from taskmix.training.folder import config_of, finished

TIMES = int(os.environ.get("TASKMIX_FUZZ", "1"))


def fuzz(examples: int) -> Callable[[Any], Any]:
    """So many examples, the same ones each time unless more were asked for."""
    return settings(
        max_examples=examples * TIMES,
        derandomize=TIMES == 1,
        print_blob=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def sentence() -> Iterator[None]:
    """A result, or one sentence."""
    try:
        yield
    except TaskmixError as error:
        if "\n" in str(error):
            raise AssertionError(f"more than a sentence: {error}") from error


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zl"]), max_size=8)
numbers = st.integers(-9, 9) | st.sampled_from([0.5, -0.5, 1e300, 1e-300, float("nan"), 10**30])
leaves = st.none() | st.booleans() | numbers | st.just(float("inf")) | words
junk = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=4,
)


def places(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values inside nested lists and mappings."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(values, dict):
        pairs = list(values.items())
    elif isinstance(values, list):
        pairs = list(enumerate(values))
    return [path, *(each for key, value in pairs for each in places(value, (*path, key)))]


def changed(values: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return nested values with another one at a path."""
    if not path:
        return value
    copy = dict(values) if isinstance(values, dict) else list(values)
    copy[path[0]] = changed(values[path[0]], path[1:], value)
    return copy


@st.composite
def broken(draw: st.DrawFn, values: Any) -> Any:
    """Values with one or two of them replaced by junk."""
    for _ in range(draw(st.integers(1, 2))):
        values = changed(values, draw(st.sampled_from(places(values))), draw(junk))
    return values


RAW = {
    "deep list": "[" * 3000 + "]" * 3000,
    "deep mapping": '{"a":' * 3000 + "1" + "}" * 3000,
    "nested to the limit": "[" * 940 + "]" * 940,
    "nested": "[" * 600 + "]" * 600,
    "huge integer": "9" * 400,
    "integer of many digits": "7" * 5000,
    "large integer": str(2**70),
    "negative": "-1",
    "large": "1e308",
    "infinite": "1e999",
    "no number": "NaN",
    "superscript": '"\\u00b2"',
    "half a pair": '"\\ud800"',
}
"""JSON that Python cannot write, or that overflows when it is counted with."""


@st.composite
def forged(draw: st.DrawFn, values: Any) -> str:
    """JSON of values with one or two of them replaced by junk, or one by hostile JSON."""
    if draw(st.booleans()):
        return json.dumps(draw(broken(values)))
    marked = json.dumps(changed(values, draw(st.sampled_from(places(values))), "<here>"))
    return marked.replace('"<here>"', RAW[draw(st.sampled_from(sorted(RAW)))])


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some are cut off, doubled, left out or others."""
    at = draw(st.integers(0, max(0, len(content) - 1)))
    length = draw(st.integers(1, 40))
    match draw(st.sampled_from(["cut", "flip", "drop", "double", "put"])):
        case "cut":
            return content[:at]
        case "flip":
            return (
                content[:at]
                + bytes([content[at] ^ 1 << draw(st.integers(0, 7))])
                + content[at + 1 :]
            )
        case "drop":
            return content[:at] + content[at + length :]
        case "double":
            return content[:at] + content[at : at + length] + content[at:]
    return content[:at] + draw(st.binary(max_size=8)) + content[at:]


FULL = json.loads(
    RunConfig(
        tasks=["digits/left", {"name": "digits/right", "rows": 20}],
        budget={"steps": 2, "batch": 4},
        evaluate={"every": 1, "examples": 4},
        objective="digits/left",
    ).model_dump_json()
)


def asked_and_got(asked: Any, got: Any) -> bool:
    """Return whether all that was asked for is there, or a short form of what is."""
    if isinstance(asked, dict) and isinstance(got, dict):
        return all(asked_and_got(value, got.get(key)) for key, value in asked.items())
    if isinstance(asked, list) and isinstance(got, list):
        return len(asked) == len(got) and all(map(asked_and_got, asked, got))
    if isinstance(asked, bool) and isinstance(got, dict | None):
        return asked == (got is not None)  # `conditional: true` is short for all defaults
    if isinstance(asked, str | int) and isinstance(got, bool | int | float):
        return isinstance(got, bool) or float(asked) == float(got)  # a number between quotes
    return repr(asked) == repr(got) or asked == got or asked is None


@fuzz(400)
@given(broken(FULL))
def test_a_run_file_is_taken_as_it_is_or_refused(values: Any) -> None:
    config = None
    with sentence():
        config = parse(values, "run.yaml") if isinstance(values, dict) else None
    if config is None:
        return
    assert dump(parse(read_value(dump(config), "run.yaml"), "run.yaml")) == dump(config)
    plain = config.model_dump(mode="json")
    for key in values.keys() - {"objective", *FAMILIES}:
        assert asked_and_got(values[key], plain[key]), key


@fuzz(100)
@given(broken(FULL))
def test_what_a_run_file_asks_for_can_be_built_or_is_refused(values: Any) -> None:
    if not isinstance(values, dict):
        return
    small = values | {"budget": {"steps": 1, "batch": 2}}
    with sentence():
        assemble(parse(small, "run.yaml"))


@fuzz(100)
@given(st.lists(st.builds("{}={}".format, words, words) | words, max_size=2), st.data())
def test_changes_from_the_command_line_are_taken_or_refused(
    tmp_path_factory: pytest.TempPathFactory, sets: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("file") / "run.yaml"
    path.write_text("tasks: [digits/left]\n")
    keys = st.sampled_from(
        ["budget", "budget.steps", "policy", "policy.eta", "tasks", "model.encoder"]
    )
    sets = [*sets, f"{data.draw(keys)}={data.draw(words)}"]
    with sentence():
        load(path, sets)


INFO = RunInfo({"a": 30, "b": 12}, 10, 4)
DECIDERS = [(family, cls) for family in FAMILIES.values() for cls in family.members]


@fuzz(40)
@pytest.mark.parametrize(("family", "cls"), DECIDERS, ids=[cls.name for _, cls in DECIDERS])
@given(data=st.data())
def test_options_are_taken_or_refused(family: Any, cls: Any, data: st.DataObject) -> None:
    known = inspect.signature(cls.__init__).parameters.keys() - {"self", "tasks", "sizes", "batch"}
    likely = junk | st.sampled_from(["a", {"a": 1, "b": 1}, [{"a": 1.0, "b": 0.0}], "bald", 2])
    options = data.draw(
        st.dictionaries(st.sampled_from(sorted(known) or ["x"]), likely, max_size=3)
    )
    with sentence():
        spec = {"name": cls.name, **options}
        decider = build_decider(parse({"tasks": ["a", "b"], family.key: spec}, "file"), INFO)
        rng = np.random.default_rng(1)
        for _ in range(3 if family.key == "policy" else 0):
            decider.ask(rng)


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """A made-up size is an error of this process, and no reason for the system to kill others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run of texts."""
    folder = tmp_path_factory.mktemp("fuzz")
    path = folder / "a.csv"
    path.write_text(
        "t,y\n" + "".join(f"a {['good', 'bad'][n % 2]} one,{n % 2}\n" for n in range(8))
    )
    files = {"train": str(path), "dev": str(path), "text": "t", "label": "y"}
    model = {"encoder": "small", "layers": 1, "width": 8, "attention_heads": 1, "vocabulary": 64}
    config = {
        "tasks": [{"name": "a", **files}, {"name": "b", **files}],
        "model": model | {"max_length": 8},
        "policy": {"name": "exp3s"},
        "budget": {"steps": 4, "batch": 2},
        "evaluate": {"every": 2},
    }
    library.run(config, folder / "run")
    return folder / "run"


def copied(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(folder, tmp_path_factory.mktemp("copy") / "run"))


@fuzz(100)
@given(data=st.data())
def test_journals_are_read_or_refused(
    done: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = copied(done, tmp_path_factory)
    path = folder / "journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damaged(path.read_bytes())))
    else:
        number = data.draw(st.integers(0, len(lines) - 1))
        texts = [json.dumps(line) for line in lines]
        texts[number : number + data.draw(st.integers(0, 2))] = [data.draw(forged(lines[number]))]
        path.write_text("".join(text + "\n" for text in texts))
    with sentence():
        list(read(path))
        run = read_run(folder)
        run_body(run)
        comparison_body({"one": [run], "again": [run]}, "one", folder)
    with sentence(), warnings.catch_warnings(action="ignore"):  # so few draws teach little
        library.improve(folder, folder / "policy.yaml", evidence="rewards")
    repair(path)


@fuzz(120)
@given(data=st.data())
def test_a_checkpoint_is_what_was_written_or_refused(
    done: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    [newest, *_] = sorted(done.glob("checkpoints/step-*"), reverse=True)
    folder = copied(newest, tmp_path_factory)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    before = path.read_bytes()
    path.write_bytes(data.draw(damaged(before)))
    try:
        found = checkpoints.load(folder)
    except UserError:
        return
    expected = checkpoints.load(newest)  # other bytes of JSON may say the same
    assert (found.step, found.state) == (expected.step, expected.state)
    assert path.read_bytes() == before or path.name == "state.json"


@fuzz(80)
@given(data=st.data())
def test_scores_run_files_and_models_are_read_or_refused(
    done: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = copied(done, tmp_path_factory)
    names = ["scores.json", "run.yaml", "model/taskmix.json", "model/heads.safetensors"]
    names += ["model/model.safetensors", "model/config.json", "model/tokenizer.json"]
    path = folder / data.draw(st.sampled_from(names))
    if path.suffix == ".json" and data.draw(st.booleans()):
        if path.name == "tokenizer.json":
            return
        path.write_text(data.draw(forged(json.loads(path.read_text()))))
    else:
        path.write_bytes(data.draw(damaged(path.read_bytes())))
    for use in (finished, config_of, library.load, lambda folder: saving.load(folder / "model")):
        with sentence():
            use(folder)


def stopped(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a copy of a run before its end, and the state of its only checkpoint."""
    folder = copied(folder, tmp_path_factory)
    (folder / "scores.json").unlink()
    shutil.rmtree(folder / "model")
    [newest, *older] = sorted(folder.glob("checkpoints/step-*"), reverse=True)
    for path in older:
        shutil.rmtree(path)
    return folder, newest / "state.json"


@fuzz(40)
@given(data=st.data())
def test_a_forged_state_is_resumed_or_refused(
    done: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Its checksum is right, so that the values inside are what is looked at."""
    folder, path = stopped(done, tmp_path_factory)
    state = json.loads(path.read_text())
    del state["checksum"]
    text = data.draw(forged(state))
    with sentence():
        try:
            values = json.loads(text)
            path.write_text(json.dumps(values | {"checksum": hash_of(json.dumps(values))}))
        except (RecursionError, ValueError, TypeError):  # Python cannot read or write it itself
            path.write_text(text)
        library.resume(folder)


@fuzz(40)
@given(data=st.data())
def test_a_change_is_completed_or_refused(
    done: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder, _ = stopped(done, tmp_path_factory)
    run, journal = ((folder / name).read_text() for name in ("run.yaml", "journal.jsonl"))
    change = {"step": 4, "run": run, "journal": len(journal), "line": ""}
    text = json.dumps(change).encode()
    forgery = forged(change).map(str.encode)
    (folder / "change.json").write_bytes(data.draw(forgery | damaged(text)))
    refused = True
    with sentence():
        complete_change(folder)
        refused = False
    if refused:
        assert (folder / "run.yaml").read_text() == run
        assert (folder / "journal.jsonl").read_text() == journal


TABLE = [{"t": "so good, so far", "p": "yes", "y": "1"}, {"t": "so bad", "p": "no", "y": "0"}] * 3
TOKENIZER = Tokenizer.train((row["t"] for row in TABLE), 64, 8)


def squad(rows: list[Mapping[str, Any]]) -> bytes:
    """Questions and answers as a file of SQuAD."""
    paragraphs = [
        {
            "context": row["p"],
            "qas": [{"id": str(number), "question": row["t"], "answers": row["y"]}],
        }
        for number, row in enumerate(rows)
    ]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}).encode()


def mrqa(rows: list[Mapping[str, Any]]) -> bytes:
    """The same as a file of MRQA."""
    lines: list[Any] = [{"header": {"dataset": "x"}}]
    for number, row in enumerate(rows):
        found = [{"text": "so", "char_spans": [[0, 1]]}]
        question = {
            "qid": str(number),
            "question": row["t"],
            "answers": ["so"],
            "detected_answers": found,
        }
        lines.append({"context": row["p"], "qas": [question]})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


COLUMNS = {
    "conll": {"text": "words", "label": "tags"},
    "squad": {"text": "question", "label": "answers", "pair": "context"},
    "mrqa": {"text": "question", "label": "answers", "pair": "context"},
}


def files_of(kind: str) -> dict[str, bytes]:
    """One small file of each format that a kind can be read from."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ["t", "p", "y"])
    writer.writeheader()
    writer.writerows(TABLE)
    rows: list[Mapping[str, Any]] = TABLE
    if kind == "tag":
        rows = [
            {"t": row["t"].split(), "y": ["O", "B-x", "I-x", "O"][: len(row["t"].split())]}
            for row in TABLE
        ]
    elif kind == "span":
        rows = [
            {"t": "what?", "p": row["t"], "y": [{"text": "so", "answer_start": 0}]} for row in TABLE
        ]
    elif kind == "multilabel":
        rows = [{**row, "y": ["x", "z"][: int(row["y"]) + 1]} for row in TABLE]
    elif kind == "choose":
        rows = [{**row, "c": ["a", "b"], "y": int(row["y"])} for row in TABLE]
    jsonl = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if kind == "tag":
        sentences = [zip(row["t"], row["y"], strict=True) for row in rows]
        lines = ["".join(f"{word}\t{tag}\n" for word, tag in pairs) for pairs in sentences]
        return {"jsonl": jsonl, "conll": "\n".join(lines).encode()}
    if kind == "span":
        return {"jsonl": jsonl, "squad": squad(rows), "mrqa": mrqa(rows)}
    if kind not in ("classify", "regress"):
        return {"jsonl": jsonl}
    tsv = text.getvalue().replace(",", "\t").encode()
    return {"csv": text.getvalue().encode(), "tsv": tsv, "jsonl": jsonl}


@fuzz(80)
@pytest.mark.parametrize("kind", ["classify", "regress", "multilabel", "tag", "span", "choose"])
@given(data=st.data())
def test_data_files_are_read_or_refused(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("data")
    files = files_of(kind)
    suffix = data.draw(st.sampled_from(sorted(files)))
    path = folder / f"data.{suffix}"
    if suffix in ("jsonl", "mrqa") and data.draw(st.booleans()):
        lines = files[suffix].decode().splitlines()
        lines[1] = data.draw(forged(json.loads(lines[1])))
        path.write_text("".join(f"{line}\n" for line in lines))
    else:
        path.write_bytes(data.draw(damaged(files[suffix])))
    columns: dict[str, Any] = COLUMNS.get(suffix, {"text": "t", "label": "y"})
    if kind == "choose":
        columns = columns | {"choices": ["c"]}
    if kind == "span" and suffix == "jsonl":
        columns = columns | {"pair": "p"}
    with sentence():
        task = from_files("x", train=path, dev=path, kind=kind, format=suffix, **columns)
        encode(task.kind, task.split("train"), TOKENIZER, folder / "cache")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[Path], Any]]:
    """A cache with an entry of each kind, and the function that fills or reads one."""
    folder = tmp_path_factory.mktemp("cached")
    path = folder / "data.csv"
    path.write_bytes(files_of("classify")["csv"])
    task = from_files("x", train=path, dev=path, text="t", label="y")
    source = task.split("train")
    spec = ModelSpec(encoder="small", vocabulary=64, max_length=8)

    def use(cache: Path) -> Any:
        tokenizer = tokenizer_for(spec, Corpus("x", lambda: [row["t"] for row in TABLE]), cache)
        split = encode(task.kind, source, tokenizer, cache)
        batch, targets = split.batch(np.arange(len(split)))
        arrays = {name: array.tolist() for name, array in (batch | targets).items()}
        return arrays, counted(source, cache).rows

    use(folder / "cache")
    return folder / "cache", use


@fuzz(60)
@given(data=st.data())
def test_a_cache_gives_what_was_put_there(
    cache: tuple[Path, Callable[[Path], Any]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    whole, use = cache
    folder = copied(whole, tmp_path_factory)
    path = data.draw(st.sampled_from(sorted(path for path in folder.rglob("*") if path.is_file())))
    content = path.read_bytes()
    if path.suffix == ".json" and data.draw(st.booleans()):
        path.write_text(data.draw(forged(json.loads(content))))
    else:
        path.write_bytes(data.draw(damaged(content)))
    assert use(folder) == use(whole)


@fuzz(100)
@given(st.binary(max_size=200), st.sampled_from(sorted(FORMATS)))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = tmp_path_factory.mktemp("data") / "data"
    path.write_bytes(content)
    with sentence():
        from_files("x", train=path, dev=path, text="t", label="y", format=name)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1, max_size=12)
labels = st.sampled_from(["yes", "no", "it's", 'a "b"', "1", "c,d"])


@fuzz(60)
@given(st.lists(st.tuples(texts.filter(str.strip), labels), min_size=2, max_size=5))
def test_a_csv_file_says_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("data") / "data.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("t", "y"), *rows])
    try:
        task = from_files("x", train=path, dev=path, text="t", label="y", labels=["yes", "no"])
        found = [(row.text, row.label) for row in task.split("train").rows()]  # type: ignore[union-attr]
    except UserError:
        return
    assert found == rows
