"""A run file: what it may say, what it gets for saying something else, and there and back."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.config import RunConfig, build_decider, changed, dump, load, parse, read_value
from taskmix.config.dialect import write_value
from taskmix.config.entries import FilesTask, HubTask
from taskmix.errors import UserError
from taskmix.policies import POLICIES, Policy
from taskmix.run_info import RunInfo

FACTS = RunInfo({"a": 30, "b": 10}, steps=100, batch=8)


def refusal(**values: Any) -> str:
    with pytest.raises(UserError) as caught:
        parse({"tasks": ["a", "b"]} | values, "my.yaml")
    return str(caught.value)


def test_everything_has_a_default_but_the_tasks() -> None:
    config = parse({"tasks": ["a"]}, "my.yaml")
    assert config.policy == {"name": "aimed"}
    with pytest.raises(UserError, match=r"my\.yaml: tasks: expected a value, found none"):
        parse({}, "my.yaml")
    assert refusal(tasks=[]) == "my.yaml: tasks: expected at least one task, found none"


def test_without_an_objective_the_default_is_uniform_apart_from_repetition() -> None:
    config = parse({"tasks": ["a", "b"]}, "my.yaml")
    assert build_decider(config, replace(FACTS, steps=1)).probabilities().tolist() == [0.5, 0.5]
    a, b = build_decider(config, replace(FACTS, steps=1000)).probabilities()
    assert a > b  # b has fewer examples, which would be repeated more often
    discount = np.exp(-(np.array([a * 8000 / 30, b * 8000 / 10]) - 1) / 15)
    assert np.array([a, b]) == pytest.approx(discount / discount.sum(), abs=1e-6)


def test_with_an_objective_the_default_draws_what_counts() -> None:
    said = {"tasks": ["a", "b"], "objective": "a"}
    config = parse(said, "my.yaml")
    assert config.policy == {"name": "aimed"}
    policy = build_decider(config, replace(FACTS, steps=1, objective=("a",)))
    assert policy.probabilities().tolist() == [0.95, 0.05]
    assert parse({**said, "policy": "random"}, "my.yaml").policy == {"name": "random"}
    weighted = parse({**said, "weighting": {"name": "alpha_vil", "target": "a"}}, "my.yaml")
    assert weighted.policy is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"bugdet": {}}, ["run: unknown key 'bugdet'", "did you mean 'budget'", "evaluate"]),
        ({"budget": {"step": 5}}, ["budget: unknown key 'step'", "did you mean 'steps'", "batch"]),
        ({"model": {"layer": 5}}, ["model: unknown key 'layer'", "did you mean 'layers'"]),
        ({"budget": {"steps": 0}}, ["budget.steps", "greater than or equal to 1", "found 0"]),
        ({"budget": {"batch": "many"}}, ["budget.batch", "integer", "found 'many'"]),
        ({"budget": 7}, ["budget", "dictionary", "found 7"]),
        ({"optimizer": {"lr": 0}}, ["optimizer.lr", "greater than 0", "found 0"]),
        ({"optimizer": {"lr": float("inf")}}, ["optimizer.lr", "finite", "found inf"]),
        ({"evaluate": {"keep": "all"}}, ["evaluate.keep", "'best' or 'last'", "found 'all'"]),
        ({"model": {"dropout": 1}}, ["model.dropout", "less than 1", "found 1"]),
        ({"seed": -1}, ["seed", "greater than or equal to 0", "found -1"]),
        ({"name": "../up"}, ["name", "found '../up'"]),
        ({"name": ".."}, ["name", "found '..'"]),
        ({"precision": "half"}, ["precision", "'bfloat16'", "found 'half'"]),
        ({"policy": "randm"}, ["unknown policy 'randm'", "did you mean 'random'", "task_size"]),
        ({"policy": {"eta": 1}}, ["policy", "expected a name among the keys", "'eta': 1"]),
        ({"policy": ["random"]}, ["policy", "dictionary", "found ['random']"]),
        ({"policy": {"name": "exp3s", "etta": 1}}, ["unknown option 'etta'", "'eta'", "epsilon"]),
        ({"policy": {"name": "random", "draws": "both"}}, ["draws", "iid", "'both'"]),
        ({"tasks": [3]}, ["tasks.0", "found 3"]),
        ({"tasks": "a"}, ["tasks", "found 'a'"]),
        ({7: 8}, ["keywords must be strings"]),
    ],
    ids=str,
)
def test_a_mistake_is_named_with_its_field_its_value_and_the_choices(
    values: dict[Any, Any], words: list[str]
) -> None:
    if 7 in values:
        with pytest.raises(UserError, match="strings"):
            parse({"tasks": ["a"], 7: 8}, "my.yaml")  # type: ignore[dict-item]
        return
    sentence = refusal(**values)
    assert sentence.startswith("my.yaml: ")
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n- b\n", "expected a mapping of keys, found a list"),
        ("", "expected a mapping of keys, found nothing"),
        ("just words", "expected a mapping of keys, found a text"),
        ("42", "expected a mapping of keys, found a number"),
        ("tasks: [a\nseed: 1\n", "line 2: expected YAML"),
        ("tasks: &x [*y]\n", "expected YAML"),
        ("a: !!python/object:os.system 1\n", "expected YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("tasks: [é]".encode("latin-1"))
    with pytest.raises(UserError, match="expected UTF-8"):
        load(tmp_path / "latin.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(UserError, match="expected a file, found a pipe or a device"):
        load(tmp_path / "pipe.yaml")


def test_yaml_is_read_as_people_mean_it() -> None:
    values = read_value("{eta: 1e-3, far: -2E5, labels: [yes, no, on], flag: true, y: 'x'}", "here")
    assert values == {
        "eta": 0.001,
        "far": -200000.0,
        "labels": ["yes", "no", "on"],
        "flag": True,
        "y": "x",
    }


def test_what_an_older_yaml_took_for_numbers_and_dates_is_text() -> None:
    texts = ["12:30", "007", "2020-01-01", "2020-99-99", "1_000", "0b11", "="]
    assert read_value(f"[{', '.join(texts)}]", "here") == texts
    assert read_value("[0, -5, 0x1F, 1., .5, 1.5e5, .inf]", "here") == [
        0,
        -5,
        31,
        1.0,
        0.5,
        150000.0,
        float("inf"),
    ]
    for text in [*texts, "1.5e5", "0x1F", "0o17", ".5", "true", "no", "null", ".nan", "1e5"]:
        assert read_value(write_value({"label": text}), "here") == {"label": text}


@pytest.mark.parametrize("text", ["!!int x", "!!float x", "!!timestamp x", "!!binary x"])
def test_a_value_that_is_not_what_it_says_is_one_sentence(text: str) -> None:
    with pytest.raises(UserError, match=r"here.*: expected YAML, "):
        read_value(f"a: {text}", "here")


@pytest.mark.parametrize(
    "said",
    [
        {"budget": {"steps": True}},
        {"optimizer": {"lr": True}},
        {"evaluate": {"every": False}},
        {"seed": True},
        {"model": {"layers": True}},
        {"model": {"dropout": False}},
        {"model": {"conditional": {"freeze": True}}},
    ],
)
def test_true_is_no_number(said: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"expected a number, found (True|False)"):
        parse({"tasks": ["a"], **said}, "run.yaml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text("tasks: [a, b]\npolicy: exp3s\nbudget: {steps: 10}\n")
    return path


def test_set_changes_single_keys(file: Path) -> None:
    config = load(file, ["budget.steps=20", "policy.eta=1e-2", "optimizer.lr=1e-4", "seed=3"])
    assert config.budget.steps == 20
    assert config.policy == {"name": "exp3s", "eta": 0.01}
    assert config.optimizer.lr == 1e-4
    assert config.seed == 3
    assert load(file, ["policy={name: temperature, temperature: 2}"]).policy == {
        "name": "temperature",
        "temperature": 2,
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("seed", "--set seed: expected key=value"),
        ("=3", "--set =3: expected key=value"),
        ("seed=[1", "expected YAML"),
        ("tasks.name=x", "tasks is not a mapping"),
        ("budget.stops=3", "unknown key 'stops'"),
        ("seed.deep=3", "seed is not a mapping|valid integer"),
        ("budget.steps=0", "budget.steps: .* found 0"),
    ],
)
def test_a_wrong_set_is_one_sentence(change: str, sentence: str, file: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        load(file, [change])


def test_paths_in_a_run_file_are_from_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for folder in ("cnn", "bert", "saved"):
        (home / folder).mkdir(parents=True)
    (home / "run.yaml").write_text(
        "tasks:\n"
        "  - a\n"
        "  - {name: m, train: m.csv, dev: sub/m.csv, text: x, label: y}\n"
        "  - {name: h, hub: saved, text: x, label: y}\n"
        "  - {name: g, hub: far/away, train: train, text: x, label: y}\n"
        "model: {encoder: bert}\n"
        "data: data\n"
    )
    monkeypatch.chdir(tmp_path)
    config = load(Path("home/run.yaml"))
    _, mine, saved, far = config.tasks
    assert isinstance(mine, FilesTask)
    assert isinstance(saved, HubTask)
    assert isinstance(far, HubTask)
    assert (mine.train, mine.dev) == (str(home / "m.csv"), str(home / "sub/m.csv"))
    assert saved.hub == str(home / "saved")
    assert (far.hub, far.train) == ("far/away", "train")
    assert config.model.encoder == str(home / "bert")
    assert config.data == str(home / "data")
    # What has a name of its own is never a folder, and the command line means its own place.
    assert load(Path("home/run.yaml"), ["model.encoder=cnn"]).model.encoder == "cnn"
    assert load(Path("home/run.yaml"), data="data").data == str(tmp_path / "data")


def test_a_policy_may_stand_in_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.yaml").write_text("name: fixed\nprobabilities: {a: 0.25, b: 0.75}\n")
    (home / "run.yaml").write_text("tasks: [a, b]\npolicy: mine.yaml\n")
    monkeypatch.chdir(tmp_path)
    fixed = {"name": "fixed", "probabilities": {"a": 0.25, "b": 0.75}}
    assert load(home / "run.yaml").policy == fixed
    assert load(home / "run.yaml", ["policy=home/mine.yaml"]).policy == fixed
    with pytest.raises(UserError, match=r"none\.yaml"):
        load(home / "run.yaml", ["policy=none.yaml"])


OWN = """
from taskmix.policies import Random

class Patient(Random):
    def __init__(self, tasks, patience=1):
        super().__init__(tasks)
        self.patience = patience

class Stranger:
    pass
"""


def test_a_policy_of_ones_own_is_named_by_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_policies_of_a_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "own_policies_of_a_test:Patient"
    config = parse({"tasks": ["a", "b"], "policy": {"name": name, "patience": 4}}, "my.yaml")
    policy = build_decider(config, FACTS)
    assert isinstance(policy, Policy)
    assert policy.tasks == ("a", "b")
    assert policy.patience == 4  # type: ignore[attr-defined]
    assert "unknown option 'x'" in own_refusal({"name": name, "x": 1})
    assert "Stranger" in own_refusal("own_policies_of_a_test:Stranger")
    for wrong in ("own_policies_of_a_test:None_", "no_such_module:X", ":X", "..up:X", "a:"):
        assert "expected module:Class" in own_refusal(wrong)


def own_refusal(policy: Any) -> str:
    """What is said of a policy of one's own when a run wants it."""
    config = parse({"tasks": ["a", "b"], "policy": policy}, "my.yaml")
    with pytest.raises(UserError) as caught:
        build_decider(config, FACTS)
    return str(caught.value)


def test_reading_a_run_file_imports_no_code_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "dangerous_code_of_a_test.py").write_text("raise SystemExit('was imported')")
    path = tmp_path / "run.yaml"
    path.write_text("tasks: [a, b]\npolicy: dangerous_code_of_a_test:Any\n")
    config = load(path)
    assert config.code == str(tmp_path)


def test_code_of_ones_own_is_looked_for_behind_the_installed_packages(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('hides the standard library')")
    (tmp_path / "mine_of_a_test.py").write_text("import queue\n" + OWN)
    path = tmp_path / "run.yaml"
    path.write_text("tasks: [a, b]\npolicy: {name: mine_of_a_test:Patient, patience: 4}\n")
    before = list(sys.path)
    assert isinstance(build_decider(load(path), FACTS), Policy)
    assert sys.path == before


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("tasks: [a]\nseed: 1\nbudget: {steps: 5, steps: 6}\n")
    with pytest.raises(UserError, match=r"line 3: expected YAML, found the key 'steps' twice"):
        load(path)


def test_yaml_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("[" * 5000)
    with pytest.raises(UserError, match="nested too deeply"):
        load(path)


def test_what_a_policy_refuses_is_one_sentence_that_names_it() -> None:
    for spec in (
        {"name": "exp3s", "eta": -1},
        {"name": "exp3s", "eta": "much"},
        {"name": "fixed", "probabilities": {"a": 1.0}},
        {"name": "fixed", "probabilities": [0.5, 0.5]},
        {"name": "cycle", "ratio": {"a": 0, "b": 0}},
        {"name": "thompson"},
        {"name": "thompson", "primary": "c"},
        {"name": "schedule", "phases": []},
        {"name": "temperature", "temperature": 0},
        {"name": "annealed", "epochs": 0},
        {"name": "active", "every": 0},
    ):
        with pytest.raises(UserError, match=f"policy {spec['name']}: ") as caught:
            build_decider(parse({"tasks": ["a", "b"], "policy": spec}, "my.yaml"), FACTS)
        assert "\n" not in str(caught.value)


def test_a_change_is_checked_like_a_run_file() -> None:
    config = parse({"tasks": ["a", "b"]}, "my.yaml")
    assert changed(config, {"seed": 4}, "--seeds").seed == 4
    with pytest.raises(UserError, match=r"--seeds: seed: .* found -4"):
        changed(config, {"seed": -4}, "--seeds")
    with pytest.raises(UserError, match=r"--policies: .*unknown policy 'no'"):
        changed(config, {"policy": "no"}, "--policies")


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
values = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e9, 1e9) | words
own_tasks = st.fixed_dictionaries(
    {"name": words, "train": words, "dev": words, "text": words, "label": words},
    optional={"labels": st.lists(words), "kind": st.just("regress"), "pair": st.none() | words},
)
REQUIRED: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2},
    "fixed": {"probabilities": {"a": 1.0}},
    "cycle": {"ratio": {"a": 1}},
    "schedule": {"phases": [{"a": 1.0}]},
    "thompson": {"primary": "a"},
}
configs = st.builds(
    RunConfig,
    name=st.from_regex(r"\A[a-z0-9_][a-z0-9.+-]{0,8}\Z"),
    tasks=st.lists(words | own_tasks, min_size=1, max_size=3).map(tuple),
    policy=st.sampled_from([{"name": cls.name} | REQUIRED.get(cls.name, {}) for cls in POLICIES])
    | st.builds(
        lambda eta, epsilon: {"name": "own:Class", "eta": eta, "epsilon": epsilon},
        st.floats(1e-9, 1e9),
        values,
    ),
    model=st.builds(
        dict,
        encoder=st.none() | words,
        layers=st.none() | st.integers(1, 9),
        dropout=st.floats(0, 0.99),
    ),
    budget=st.builds(dict, steps=st.integers(1, 10**9), batch=st.integers(1, 512)),
    optimizer=st.builds(dict, lr=st.floats(1e-300, 1e300), warmup=st.floats(0, 1)),
    evaluate=st.builds(
        dict, every=st.none() | st.integers(1, 9), keep=st.sampled_from(["best", "last"])
    ),
    seed=st.integers(0, 2**63),
    data=st.none() | words,
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(configs)
def test_what_is_dumped_is_what_is_parsed(config: RunConfig) -> None:
    assert parse(read_value(dump(config), "here"), "run.yaml") == config
