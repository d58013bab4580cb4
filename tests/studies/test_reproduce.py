"""Recipes: every one is valid at both sizes, runs, and is judged by its rules."""

import json
import os
import re
from pathlib import Path

import pytest

from taskmix.errors import UserError
from taskmix.studies.autosem import AutosemSettings
from taskmix.studies.contestants import contestant_config
from taskmix.studies.reproduce import (
    LEFT_OUT,
    RecipeList,
    Reproduction,
    Reproductions,
    ScaleName,
    read_recipe,
    read_reproductions,
    recipe_names,
    reproduce,
    store,
)
from taskmix.studies.reproduce.cost import cost_of

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
                AutosemSettings(**recipe.autosem_settings(scale, name_))
    elif recipe.scale(scale).adapt is None:
        for config in configs:
            for spec in recipe.contestants_of(scale).values():
                if spec == "alone" or "learned_from" not in spec:
                    contestant_config(config, spec)


@pytest.mark.parametrize("name", recipe_names())
def test_rules_and_reported_values_name_contestants(name: str) -> None:
    recipe = read_recipe(name)
    named = {n for rule in recipe.rules for n in (rule.contestant, rule.against)}
    contestants = {re.split("[,:] ", series)[0] for series in named | set(recipe.reported)}
    zero_shot = recipe.paper.adapt is not None and 0 in recipe.paper.adapt.fractions
    tasks = {"random", *recipe.config("paper").task_names} if zero_shot else set()
    assert contestants <= {*recipe.contestants, *tasks}
    assert set(recipe.paper.contestants) <= set(recipe.contestants)
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
        read_recipe("camtl/table7")


def test_the_bandit_of_figure_1_runs_and_is_stored(tmp_path: Path) -> None:
    result = reproduce("counterfactual/figure1", out=tmp_path / "study")
    assert len(result.values["random"]) == 8
    assert json.loads((tmp_path / "study/reproduction.json").read_text())["scale"] == "small"
    file = tmp_path / "results.jsonl"
    store(result, file)
    store(result, file)
    [stored] = read_reproductions(file)
    assert stored == result
    [table] = Reproductions([stored]).tables()
    assert result.verdict() in table.markdown()


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
    verdicts = [
        Reproduction("counterfactual/table1", "small", each, 60.0).verdict()
        for each in (claimed, other, few)
    ]
    assert verdicts == [
        "reproduced: 4 of 4 rules hold",
        "not reproduced: 3 of 4 rules hold",
        "not comparable: too few seeds for a test",
    ]


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


@pytest.mark.skipif("TASKMIX_DATA" not in os.environ, reason="needs the official data sets")
def test_a_recipe_with_targets_trains_each(tmp_path: Path) -> None:
    sets = [
        "tasks=[{name: multimnist/left, rows: 64}, {name: multimnist/right, rows: 64}]",
        "budget={rounds: 1, batch: 32}",
        "evaluate={examples: 32, every: 1}",
    ]
    result = reproduce("alphavil/table1", out=tmp_path, seeds=[1], sets=sets)
    assert sorted(result.values["alpha_vil"]) == [1, 1001]


def test_the_page_has_the_stored_results() -> None:
    page = (ROOT / "docs/reproduce.md").read_text()
    shown = page.split("<!-- results -->\n")[1].split("<!-- end of results -->")[0]
    stored = Reproductions(read_reproductions(ROOT / "experiments/reproduce/outcomes.jsonl"))
    assert shown == "".join(table.markdown() for table in stored.tables())
