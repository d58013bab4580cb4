"""Experiments: their tables are those of the stored outcomes, and their scripts run."""

import ast
import json
from importlib import import_module
from pathlib import Path
from shlex import quote, split

import pytest

from experiments.shared import Outcomes

ROOT = Path(__file__).parents[1] / "experiments"
SCRIPTS = sorted(
    f"experiments.{path.parent.name}.{path.stem}"
    for path in ROOT.glob("*/*.py")
    if "def table(" in path.read_text()
)
PAGES = {"dead_channels": "dead_channels.md", "diw": "diw.md", "promises": "promises.md"}
TWO = quote("tasks=[{name: glue/rte, rows: 40}, {name: glue/mrpc, rows: 40}]")
SMALL = f"--set {TWO} --set budget.steps=2 --set evaluate.examples=8 --set evaluate.every=2"
HELD_OUT = quote("tasks=[{name: superglue/cb, held_out: 0.3}, {name: glue/wnli, held_out: 0.3}]")


def page_of(script: str) -> Path:
    _, experiment, module = script.split(".")
    return ROOT / experiment / PAGES.get(module, "table.md")


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_table_is_made_of_the_stored_outcomes(script: str) -> None:
    page = page_of(script)
    table = import_module(script).table(Outcomes(page.with_name("outcomes.jsonl")))
    hint = f"python -m {script} --table"
    assert page.read_text() == table + "\n", hint


@pytest.mark.parametrize("folder", sorted({page_of(script).parent for script in SCRIPTS}))
def test_an_experiment_says_its_rule(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert f"python -m experiments.{folder.name}.run" in text
    assert "## Rule" in text


SMOKE: dict[str, list[str]] = {
    "small_glue.run": [f"--seeds 1 {SMALL}"],
    "three_tasks.run": [f"--seeds 1 --deciders random {SMALL}"],
    "eighteen.run": [SMALL],
    "autosem_glue.run": [f"--seeds 1 --primaries glue/rte --variants baseline {SMALL}"],
    "autosem_synthetic.run": ["--seeds 1 --variants full --steps 10 --trials 2 --rounds 4"],
    "camtl.run": [
        "--seeds 1 --only ladder --rungs mtl --steps 4 --examples 4 --rows 40",
        "--seeds 1 --only start --frozen half --steps 2 --examples 4 --rows 40",
    ],
    "mixtures.run": [
        "compare auxiliaries --seeds 401 --arms uniform aimed --set budget.steps=4",
        "headroom auxiliaries --trials 2 --set budget.steps=4",
    ],
    "five_nlu.run": [
        f"--seeds 1 --methods multi --set budget.rounds=1 --set {HELD_OUT} "
        "--set model.layers=1 --set model.freeze=0 --set evaluate.examples=8"
    ],
    "multimnist.run": [
        "--seeds 1 --methods alpha_vil --targets left --epochs 1 --pairs 60 --dev 20 --workers 1"
    ],
    "multimnist.dead_channels": [
        "--seeds 1 --methods single --epochs 1 --pairs 300 --dev 20",
    ],
    "multimnist.diw": ["--seeds 1 --epochs 1 --pairs 60 --dev 20"],
    "coverage.run": ["--logs 10 --cells 2"],
    "coverage.promises": ["--logs 2"],
    "learned_mixture.run": [
        "--suites begun sizes --seeds 1 --arms uniform learned --set budget.steps=10",
        "--suites bandit --sets 1 --environments 1",
        "--suites free --seeds 1 --set budget.steps=40",
    ],
    "rl_arena.run": [
        "--seeds 1 --suites waste --policies uniform dump --tokens 200 --supervised 2"
    ],
    "bandit_counterfactual.run": ["--environments 1 --seeds 1 --steps 100 --sets 1"],
}


def test_every_run_of_an_experiment_names_its_policy() -> None:
    deciders = {"policy", "selection", "weighting", None}  # None is a mapping of values
    for path in ROOT.glob("*/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "RunConfig":
                assert deciders & {keyword.arg for keyword in node.keywords}, path


def test_every_script_has_a_smoke_test() -> None:
    assert sorted(f"experiments.{name}" for name in SMOKE) == SCRIPTS


@pytest.mark.parametrize("name", SMOKE)
@pytest.mark.filterwarnings("ignore::taskmix.offpolicy.SmallSampleWarning")
@pytest.mark.filterwarnings("ignore::taskmix.offpolicy.FarPolicyWarning")
def test_a_script_runs_and_does_not_repeat_what_is_stored(
    name: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, outcomes = import_module(f"experiments.{name}"), tmp_path / "outcomes.jsonl"
    where = ["--outcomes", str(outcomes), "--runs", str(tmp_path / "runs")]
    commands = [[*split(command), *where] for command in SMOKE[name]]
    for command in commands:
        module.main(command)
    stored = outcomes.read_text()
    assert stored
    capsys.readouterr()
    for command in commands:
        module.main(command)
    assert outcomes.read_text() == stored
    assert module.table(Outcomes(outcomes)) in capsys.readouterr().out


def test_figure_3_is_drawn_of_a_stored_outcome(tmp_path: Path) -> None:
    import_module("experiments.multimnist.figure3").main([str(tmp_path / "figure.html")])
    assert "<html>" in (tmp_path / "figure.html").read_text()


def test_a_torn_line_is_made_again(tmp_path: Path) -> None:
    outcomes = Outcomes(tmp_path / "outcomes.jsonl")
    outcomes.add("a", {"score": 1})
    with outcomes.path.open("a") as file:
        file.write('{"name": "b", "sco')
    assert "b" not in outcomes
    outcomes.add("b", {"score": 2})
    assert outcomes.values() == [{"score": 1}, {"score": 2}]


def test_an_outcome_is_stored_once(tmp_path: Path) -> None:
    outcomes = Outcomes(tmp_path / "outcomes.jsonl")
    outcomes.add("a", {"score": 1})
    outcomes.add("a", {"score": 2})
    assert outcomes["a"] == {"score": 1}


def test_stored_outcomes_have_names_of_their_own() -> None:
    for path in ROOT.glob("*/outcomes.jsonl"):
        names = [json.loads(line)["name"] for line in path.read_text().splitlines()]
        assert len(names) == len(set(names)), path
