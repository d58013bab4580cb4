"""Recipes: every one is valid at both sizes, runs, and is judged by its rules."""

import json
import math
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from taskmix.errors import UserError
from taskmix.studies.adapt import adapted_config
from taskmix.studies.autosem import AutosemSettings
from taskmix.studies.compare import DIVERGED
from taskmix.studies.comparison import Comparison
from taskmix.studies.contestants import contestant_config
from taskmix.studies.paired import Difference
from taskmix.studies.reproduce import (
    LEFT_OUT,
    RecipeList,
    Reproduction,
    Reproductions,
    Rule,
    ScaleName,
    dry_run,
    read_recipe,
    read_reproductions,
    recipe_names,
    reproduce,
    store,
)
from taskmix.studies.reproduce.cost import cost_of, multiplications, run_count, same_size
from taskmix.studies.reproduce.recipe import Adaptation, Scale, machine_sets
from taskmix.tasks.parts import rows_of
from taskmix.training.folder import CHECKPOINTS, SCORES, Finished, Scores
from taskmix.training.prepare import resolve
from tests.conftest import Taskmix

ROOT = Path(__file__).parents[2]
TRAINED = [name for name in recipe_names() if not read_recipe(name).bandit]


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", TRAINED)
def test_every_recipe_is_a_valid_comparison(name: str, scale: ScaleName) -> None:
    recipe = read_recipe(name)
    assert cost_of(recipe, scale).runs > 0
    configs = [
        recipe.config(scale, target, panel)
        for target in recipe.targets or ("",)
        for panel in recipe.panels_of(scale)
    ]
    if recipe.autosem is not None:
        for name_, spec in recipe.contestants.items():
            if spec != "alone":
                AutosemSettings(**recipe.autosem_settings(scale, name_, recipe.targets[0]))
    elif recipe.scale(scale).adapt is None:
        for config in configs:
            for spec in recipe.contestants_of(scale).values():
                if spec == "alone" or "learned_from" not in spec:
                    contestant_config(config, spec)


@pytest.mark.parametrize("name", recipe_names())
def test_rules_and_reported_values_name_contestants(name: str) -> None:
    recipe = read_recipe(name)
    named = {n for rule in recipe.rules for n in (rule.contestant, rule.against)}
    reported = {*recipe.reported, *recipe.reported_by_task}
    contestants = {re.split("[,:] ", series)[0] for series in named}
    zero_shot = recipe.paper.adapt is not None and 0 in recipe.paper.adapt.fractions
    tasks = {"random", *recipe.config("paper").task_names} if zero_shot else set()
    assert contestants <= {*recipe.contestants, *tasks}
    at_paper = {*recipe.contestants, *recipe.paper.contestants}
    assert {re.split("[,:] ", series)[0] for series in reported} <= {*at_paper, *tasks}
    assert at_paper - set(recipe.contestants) <= reported  # others of the paper's table
    of_tasks = {task for values in recipe.reported_by_task.values() for task in values}
    if of_tasks:
        apart = recipe.tasks_apart("paper")
        assert of_tasks <= set(apart or recipe.first_config("paper").task_names)
    assert set(recipe.paper.by_target) <= set(recipe.targets)
    assert {n for of in recipe.measures.values() for n in of} <= set(recipe.contestants)


def test_the_list_has_every_recipe_and_the_reasons_for_those_left_out() -> None:
    recipes, left_out = RecipeList("paper").tables()
    assert [row[0] for row in recipes.rows] == recipe_names()
    assert [row[0] for row in left_out.rows] == list(LEFT_OUT)
    assert not set(LEFT_OUT) & set(recipe_names())


def test_an_unknown_recipe_is_one_sentence() -> None:
    with pytest.raises(UserError, match="camtl/tabel1"):
        read_recipe("camtl/tabel1")
    with pytest.raises(UserError, match="there is no recipe"):
        read_recipe("camtl/table9")


def test_the_bandit_of_figure_1_runs_and_is_stored(tmp_path: Path, taskmix: Taskmix) -> None:
    study, file = tmp_path / "study", tmp_path / "results.jsonl"
    said = taskmix("reproduce", "counterfactual/figure1", "--out", study, "--results", file)
    assert said.code == 0
    assert said.out.count("reproduced") == 1
    [result] = read_reproductions(file)
    assert len(result.values["random"]) == 8
    assert json.loads((study / "reproduction.json").read_text()) == result.to_json() | {
        "values": json.loads(json.dumps(result.values))
    }
    store(result, file)  # in place of the first
    assert read_reproductions(file) == [result]
    assert result.verdict() in taskmix("reproduce", "--results", file).out


def values(**means: float) -> dict[str, dict[int, float]]:
    noise = [0.0, 0.002, -0.001, 0.001, -0.002]
    signs = {name: 1 if k % 2 else -1 for k, name in enumerate(means)}
    return {
        name: {seed: mean + signs[name] * error for seed, error in enumerate(noise)}
        for name, mean in means.items()
    }


def test_a_verdict_follows_from_the_rules() -> None:
    claimed = values(random=0.7, task_size=0.6, exp3s=0.7, counterfactual=0.8)
    other = values(random=0.7, task_size=0.6, exp3s=0.7, counterfactual=0.65)
    for each in (claimed, other):
        each.update({f"counterfactual: glue/{t}": v for t, v in values(mnli=0.3, rte=0.1).items()})
    few = {name: {0: of_name[0]} for name, of_name in claimed.items()}
    settings = read_recipe("counterfactual/table1").fingerprint("small")
    verdicts = [
        Reproduction("counterfactual/table1", "small", each, 60.0, settings).verdict()
        for each in (claimed, other, few)
    ]
    assert verdicts == [
        "reproduced: 5 of 5 rules hold",
        "not reproduced: 3 of 5 rules hold",
        "not comparable: too few seeds for a test, --seeds adds more",
    ]


@pytest.mark.parametrize(
    ("low", "mean", "high", "p", "held"),
    [
        (0.001, 0.004, 0.007, 0.02, {"above", "equal", "not_below"}),
        (-0.009, -0.005, -0.001, 0.03, {"below", "equal", "not_below"}),
        (-0.008, 0.001, 0.009, 0.7, {"equal", "not_below"}),
        (-0.008, 0.02, 0.048, 0.1, {"not_below"}),
        (-0.04, -0.02, 0.001, 0.07, set()),  # too few seeds to say anything
        (0.02, 0.03, 0.04, 0.001, {"above", "not_below"}),
    ],
)
def test_that_nothing_differs_takes_evidence_too(
    low: float, mean: float, high: float, p: float, held: set[str]
) -> None:
    difference = Difference(mean, 3, low, high, p)
    expected = ("above", "below", "equal", "not_below")
    rules = [Rule(contestant="a", against="b", expect=expect) for expect in expected]
    assert {rule.expect for rule in rules if rule.holds(difference)} == held


def test_results_with_other_settings_are_not_comparable() -> None:
    recipe = read_recipe("counterfactual/figure1")
    assert recipe.fingerprint("small") != recipe.fingerprint("paper")
    shorter = recipe.model_copy(update={"small": Scale(bandit={"steps": 10, "environments": 8})})
    assert shorter.fingerprint("small") != recipe.fingerprint("small")
    stricter = recipe.model_copy(update={"rules": recipe.rules[:1], "claim": "Another."})
    assert stricter.fingerprint("small") == recipe.fingerprint("small")
    changed = Reproduction("counterfactual/figure1", "small", {}, 1.0, shorter.fingerprint("small"))
    assert "other settings than those of the recipe" in changed.verdict()
    assert recipe.fingerprint("small", ["seed=3"]) != recipe.fingerprint("small")


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
def test_a_recipe_with_a_learned_contestant_trains(tmp_path: Path) -> None:
    sets = [
        "tasks=[{name: glue/rte, rows: 40}, {name: glue/mrpc, rows: 40}]",
        "model={encoder: small, width: 16, attention_heads: 2, vocabulary: 300, max_length: 16}",
        "budget={steps: 8, batch: 4}",
        "evaluate={examples: 8, every: 8}",
    ]
    result = reproduce("counterfactual/table1", out=tmp_path, seeds=[1, 2], sets=sets)
    scores = [series for series in result.values if ":" not in series]
    assert scores == list(read_recipe("counterfactual/table1").contestants)
    learned = [result.values[f"counterfactual: glue/{task}"][1] for task in ("rte", "mrpc")]
    assert sum(learned) == pytest.approx(1)
    assert all(sorted(by_seed) == [1, 2] for by_seed in result.values.values())


def test_a_contestant_that_always_diverges_leaves_its_rules_untested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {"glue/rte": Scores(0.7, {"accuracy": 0.7}, 0.5, 10)}
    runs = [Finished(1, 0.7, scores, 1, 1) for _ in range(3)]
    names = ("task_size", "exp3s")  # not random, from whose runs the counterfactual one is learned
    left = Comparison(dict.fromkeys(names, runs), {}, seeds=dict.fromkeys(names, (1, 2, 3)))
    monkeypatch.setattr("taskmix.studies.reproduce.experiments.compare", lambda *_, **__: left)
    result = reproduce("counterfactual/table1", out=tmp_path)
    assert result.verdict() == "not comparable: too few seeds for a test, --seeds adds more"


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
def test_a_recipe_with_targets_trains_each(tmp_path: Path) -> None:
    sets = [
        "tasks=[{name: multimnist/left, rows: 64}, {name: multimnist/right, rows: 64}]",
        "budget={rounds: 1, batch: 32}",
        "evaluate={examples: 32, every: 1}",
    ]
    result = reproduce("alphavil/table1", out=tmp_path, seeds=[1], sets=sets)
    assert sorted(result.values["alpha_vil"]) == [1, 1001]


SMALL = [
    "model={encoder: small, width: 16, attention_heads: 2, vocabulary: 300, max_length: 16}",
    "evaluate={examples: 8, every: 4}",
]


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
def test_an_autosem_recipe_has_its_stages_and_the_primary_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = read_recipe("autosem/table2")
    settings = {"rounds": 4, "batches": 1, "trials": 2, "initial": 1}
    short = recipe.model_copy(
        update={"small": recipe.small.model_copy(update={"autosem": settings})}
    )
    monkeypatch.setattr("taskmix.studies.reproduce.read_recipe", lambda name: short)
    sets = [
        "tasks=[{name: glue/rte, rows: 40}, {name: glue/mrpc, rows: 40}]",
        "budget={steps: 4, batch: 4}",
        *SMALL,
    ]
    result = reproduce("autosem/table2", out=tmp_path, seeds=[5, 6], sets=sets)
    assert set(result.values) == {"baseline", "no_selection", "no_search", "full"}
    assert all(sorted(by_seed) == [5, 6] for by_seed in result.values.values())
    assert result.seconds > 0


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
@pytest.mark.parametrize("fraction", [0, 0.005])
def test_a_recipe_adapts_a_trained_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fraction: float
) -> None:
    name = "camtl/table3" if fraction else "camtl/table8"
    recipe = read_recipe(name)
    adaptation = Adaptation(
        tasks=("scitail",), fractions=(fraction,), sets=("budget.steps=4", "evaluate.every=4")
    )
    short = recipe.model_copy(
        update={"small": recipe.small.model_copy(update={"adapt": adaptation})}
    )
    monkeypatch.setattr("taskmix.studies.reproduce.read_recipe", lambda name: short)
    sets = [
        "tasks=[{name: glue/rte, rows: 40}, {name: glue/mnli, rows: 40}]",
        "budget={steps: 4, batch: 4}",
        "model={encoder: minilm, layers: 2, max_length: 16, conditional: {freeze: 1}}",
        "evaluate={examples: 8, every: 4}",
    ]
    result = reproduce(name, out=tmp_path, seeds=[1], sets=sets)
    if fraction:
        assert set(result.values) == {"adapted, 0.5%", "alone, 0.5%"}
    else:
        assert set(result.values) == {f"{t}, scitail" for t in ("glue/rte", "glue/mnli", "random")}
    again = reproduce(name, out=tmp_path, seeds=[1], sets=sets)  # nothing is trained twice
    assert again.values == result.values
    assert not list(tmp_path.rglob(CHECKPOINTS))  # with the optimiser's state, they are large
    if fraction:
        diverged = tmp_path / "scitail/0.5/alone/seed-1"
        (diverged / SCORES).unlink()
        (diverged / DIVERGED).write_text("the loss is nan\n")
        left = reproduce(name, out=tmp_path, seeds=[1], sets=sets)
        assert set(left.values) == {"adapted, 0.5%"}


def test_a_dry_run_counts_and_trains_nothing(taskmix: Taskmix) -> None:
    said = taskmix("reproduce", "--dry-run", "counterfactual/figure1")
    assert said.code == 0
    assert "320,000" in said.out


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
def test_a_dry_run_of_all_recipes_says_rows_steps_hours_and_memory() -> None:
    result = dry_run()
    assert list(result.costs) == recipe_names()
    table = result.costs["counterfactual/table1"]
    assert (table.runs, table.steps) == (12, 7200)
    assert table.rows == sum(
        rows_of(task.split("train"))
        for task in resolve(read_recipe("counterfactual/table1").config("small"))
    )
    assert table.flops is not None
    assert table.memory is not None
    assert not any(cost.missing for cost in result.costs.values())


def test_the_operations_of_a_step_are_those_that_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import BertConfig, BertModel

    config = read_recipe("camtl/table1").config("paper")
    shape = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    with torch.device("meta"):
        model = BertModel(BertConfig(**shape, intermediate_size=3072), add_pooling_layer=False)
        ids = torch.zeros(1, config.model.max_length, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            model(input_ids=ids)
    ours = multiplications(config.model_spec)
    assert ours is not None
    assert 2 * ours == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_a_dry_run_counts_the_studies_of_autosem_once_and_both_trainings_of_each_seed() -> None:
    recipe = read_recipe("autosem/table2")  # two studies with stage 1, and one without
    settings, steps = recipe.small.autosem, recipe.small.run["budget"]["steps"]
    rounds = settings["rounds"] * settings["batches"]
    for seeds in ([101], [101, 102]):
        assert run_count(recipe, "small", seeds) == 2 + 3 * (settings["trials"] + 2 * len(seeds))
        if "TASKMIX_DATA" in os.environ:
            expected = 2 * rounds + 3 * (settings["trials"] + 2 * len(seeds)) * steps
            assert cost_of(recipe, "small", seeds).steps == expected


def test_a_task_alone_is_a_run() -> None:
    recipe = read_recipe("camtl/table4")
    assert run_count(recipe, "small", [1]) == len(recipe.config("small").tasks) + 2


def test_settings_of_a_target_are_those_of_its_runs_alone() -> None:
    recipe = read_recipe("autosem/table3")
    rte, sst2 = (recipe.config("paper", f"glue/{task}") for task in ("rte", "sst2"))
    assert (rte.model.width, sst2.model.width) == (1024, 512)
    assert (rte.evaluate.patience, sst2.evaluate.patience) == (5, None)
    assert "glue/sst2" not in rte.task_names
    trials = [
        recipe.autosem_settings("paper", "autosem", f"glue/{task}")["trials"]
        for task in ("rte", "mrpc")
    ]
    assert trials == [20, 15]
    shared = recipe.paper.model_copy(update={"by_target": {}})
    assert recipe.model_copy(update={"paper": shared}).fingerprint("paper") != recipe.fingerprint(
        "paper"
    )


def test_an_encoder_takes_the_place_of_the_texts_encoder(tmp_path: Path) -> None:
    folder = json.dumps(str(tmp_path.resolve()))
    plain, bilstm = read_recipe("camtl/table1"), read_recipe("autosem/table3")
    assert machine_sets(plain, "paper", None, str(tmp_path)) == [f"model.encoder={folder}"]
    assert machine_sets(bilstm, "paper", None, str(tmp_path)) == [f"model.over={folder}"]
    assert machine_sets(plain, "paper", None, "owner/name") == ['model.encoder="owner/name"']


def test_an_encoder_of_another_size_is_another_setting(tmp_path: Path) -> None:
    recipe = read_recipe("camtl/table1")
    for layers, same in ((12, True), (6, False)):
        size = {"num_hidden_layers": layers, "hidden_size": 768, "vocab_size": 28996}
        (tmp_path / "config.json").write_text(json.dumps(size))
        assert same_size(recipe, "paper", [f"model.encoder={tmp_path}"]) is same


def test_values_by_task_stand_beside_the_papers() -> None:
    targets = {"single": {1: 0.5, 2: 0.7, 1001: 0.8}, "joint": {1: 0.4}}
    result = Reproduction("alphavil/table1", "small", targets, 60.0, "")
    assert result.tasks_table().texts() == [
        ["multimnist/left", "60.0 (96.7)", "40.0 (96.4)"],
        ["multimnist/right", "80.0 (95.6)", "–"],
    ]
    measured = {"random": {1: 0.5}, "random: glue/rte score": {1: 0.6, 2: 0.7}}
    result = Reproduction("counterfactual/table1", "small", measured, 60.0, "")
    assert result.tasks_table().texts() == [["glue/rte", "65.0 (73.4)"]]
    assert [row[0] for row in result.values_table().rows] == ["random"]
    zero_shot = {"glue/rte, snli": {1: 0.5}}
    assert len(Reproduction("camtl/table8", "small", zero_shot, 60.0, "").tables()) == 2


def test_final_trainings_that_diverged_have_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finals(*values: float) -> list[SimpleNamespace]:
        return [SimpleNamespace(seed=101 + k, value=value) for k, value in enumerate(values)]

    study = SimpleNamespace(finals=finals(0.8, -math.inf, 0.7), alone=finals(0.6, 0.6, 0.6))
    monkeypatch.setattr("taskmix.studies.autosem.autosem", lambda *_, **__: study)
    values = reproduce("autosem/table2", out=tmp_path).values
    assert values["full"] == {101: 0.8, 103: 0.7}
    assert values["baseline"] == {101: 0.6, 102: 0.6, 103: 0.6}


def test_a_dry_run_of_one_recipe_shows_its_rules_and_choices(taskmix: Taskmix) -> None:
    recipe = read_recipe("counterfactual/figure1")
    said = taskmix("reproduce", "--dry-run", "counterfactual/figure1").out
    assert all(text in said for text in (recipe.claim, *recipe.choices))
    assert all(rule.words in said for rule in recipe.rules)


def test_an_encoder_in_a_folder_costs_as_much_as_that_of_its_name(tmp_path: Path) -> None:
    size = {"num_hidden_layers": 12, "hidden_size": 768, "vocab_size": 28996}
    (tmp_path / "config.json").write_text(json.dumps(size))
    config = read_recipe("camtl/table1").config("paper")
    assert config.model.encoder == "bert-base-cased"
    named = config.model_spec
    in_folder = named.model_copy(update={"encoder": str(tmp_path)})
    assert multiplications(in_folder) == multiplications(named)
    (tmp_path / "config.json").write_text("{}")
    assert multiplications(in_folder) is None


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
def test_an_adaptation_costs_its_part_of_the_rows() -> None:
    recipe = read_recipe("camtl/table3")
    rows = {
        task: rows_of(resolve(adapted_config(recipe.config("paper"), task))[0].split("train"))
        for task in ("scitail", "snli")
    }
    glue = sum(rows_of(task.split("train")) for task in resolve(recipe.config("paper")))
    epochs = glue + 2 * sum(rows.values()) * (0.001 + 0.01 + 0.1 + 1)  # two contestants
    assert cost_of(recipe, "paper").steps == pytest.approx(5 * epochs / 32, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--all", "camtl/table1"], "--all: expected no recipe beside it, found camtl/table1"),
        (["counterfactual/figure1", "--encoder", "x"], "expected a recipe that trains a model"),
        (["counterfactual/figure1", "--seeds", "1-3"], "expected a recipe that trains a model"),
        (["counterfactual/figure1", "--set", "seed=3"], "expected a recipe that trains a model"),
        (["counterfactual/figure1", "--seeds", "3", "--dry-run"], "expected a recipe that trains"),
        (["counterfactual/figure1", "--results", "."], "expected a file of stored reproductions"),
        (["counterfactual/figure1", "--out", "/dev/null"], "expected a folder to write to"),
        (["camtl/table1", "--encoder", "./none"], "expected a folder or a hub name, found no"),
        (["camtl/table1", "--encoder", "./none", "--dry-run"], "expected a folder or a hub name"),
        (["camtl/table1", "--seeds", "1,1001"], "seeds: expected numbers below 1000, found 1001"),
        (["alphavil/table1", "--encoder", "x"], "expected a recipe that reads texts"),
        (["--all", "--encoder", "x"], "expected one recipe, found --all"),
    ],
)
def test_wrong_options_are_one_sentence(
    taskmix: Taskmix, arguments: list[str], message: str
) -> None:
    said = taskmix("reproduce", *arguments)
    assert said.code == 2
    assert message in said.err


def test_the_stored_results_are_of_the_recipes_as_they_are() -> None:
    for result in read_reproductions(ROOT / "experiments/reproduce/outcomes.jsonl"):
        assert result.settings == result.recipe.fingerprint(result.scale), result.name


def test_the_page_has_the_stored_results() -> None:
    page = (ROOT / "docs/results.md").read_text()
    shown = page.split("<!-- results -->\n")[1].split("<!-- end of results -->")[0]
    stored = Reproductions(read_reproductions(ROOT / "experiments/reproduce/outcomes.jsonl"))
    assert shown == "".join(table.markdown() for table in stored.tables())
