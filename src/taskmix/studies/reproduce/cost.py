"""What a recipe costs: rows, steps, hours and memory, before anything is run."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from taskmix.config import RunConfig, build_decider
from taskmix.errors import UserError
from taskmix.selection import Selector
from taskmix.studies.adapt import adapted_config, with_fraction
from taskmix.studies.autosem import AutosemSettings
from taskmix.studies.contestants import ALONE, contestant_config
from taskmix.studies.reproduce.recipe import (
    LEFT_OUT,
    Recipe,
    ScaleName,
    machine_sets,
    read_recipe,
    recipe_names,
)
from taskmix.tables import Column, Row, Table, Tabled

if TYPE_CHECKING:
    from taskmix.models.spec import ModelSpec

_SHAPES = {
    "minilm": (6, 384, 22.7e6),
    "bert-base": (12, 768, 109e6),
    "bert-large": (24, 1024, 335e6),
    "roberta-base": (12, 768, 125e6),
    "roberta-large": (24, 1024, 355e6),
}
"""By the beginning of an encoder's name: layers, width, and parameters with the embeddings."""
_SIZES = ("num_hidden_layers", "hidden_size", "vocab_size")
"""In the configuration of an encoder in a folder."""
_UTILISATION = 0.4
"""The part of a matrix product's speed that a training step reaches."""


@dataclass(frozen=True)
class Cost:
    """The cost of a recipe.

    Args:
        rows: training rows of all tasks, in the largest of its runs.
        runs: the number of runs.
        steps: optimiser steps of all runs; rounds of a weighting count by their batches.
        flops: floating-point operations of all runs with sequences of the maximum length; None if
            the encoder's size is not known.
        memory: bytes of the largest run, with AdamW in float32; None likewise.
        missing: why the rows are not known.
    """

    rows: int | None
    runs: int
    steps: int | None
    flops: float | None
    memory: float | None
    missing: str = ""


@dataclass(frozen=True)
class _Plan:
    """Runs of a recipe with one configuration.

    Args:
        runs: their number, with all seeds.
        config: the configuration.
        fraction: of the training rows of its task, if it has only one.
        part: of the configuration's budget that a run has.
    """

    runs: int
    config: RunConfig
    fraction: float = 1.0
    part: float = 1.0


@dataclass(frozen=True, repr=False)
class DryRun(Tabled):
    """The costs of recipes by name.

    Args:
        scale: the size.
        costs: by recipe.
        speed: floating-point operations of this machine in a second of training.
    """

    scale: ScaleName
    costs: dict[str, Cost]
    speed: float

    def tables(self) -> list[Table]:
        columns = [Column("recipe"), Column("experiment", left=True)]
        columns += [Column("rows", ",.0f"), Column("runs", ",.0f"), Column("steps", ",.0f")]
        columns += [Column("hours", _hours), Column("GB", ".1f")]
        rows: list[Row] = [self._row(name, cost) for name, cost in self.costs.items()]
        missing = [f"{name}: {cost.missing}" for name, cost in self.costs.items() if cost.missing]
        notes = (
            f"Hours of one process here, at {self.speed / 1e9:,.0f} GFLOP/s, with texts of the "
            "maximum length; evaluations, signals and the tries of diw are not counted. Memory is "
            "that of one run in float32. Encoders of images, the bandit and encoders of unknown "
            "size have no estimate.",
            *missing,
        )
        table = Table(columns, rows, f"Recipes at scale {self.scale}", notes=notes)
        if len(self.costs) > 1:
            return [replace(table, notes=(*notes, _papers())), _left_out_table()]
        return [table, *map(_content_table, self.costs)]

    def _row(self, name: str, cost: Cost) -> Row:
        recipe = read_recipe(name)
        hours = None if cost.flops is None else cost.flops / self.speed / 3600
        memory = None if cost.memory is None else cost.memory / 1e9
        return [name, recipe.title, cost.rows, cost.runs, cost.steps, hours, memory]


@dataclass(frozen=True, repr=False)
class RecipeList(Tabled):
    """The recipes of the package, and the tables and figures without one."""

    scale: ScaleName = "small"

    def tables(self) -> list[Table]:
        rows: list[Row] = []
        for name in recipe_names():
            recipe = read_recipe(name)
            runs = run_count(recipe, self.scale)
            rows.append([name, recipe.title, runs])
        columns = [Column("recipe"), Column("experiment", left=True), Column("runs", ",.0f")]
        title = f"Recipes at scale {self.scale}"
        return [Table(columns, rows, title, notes=(_papers(),)), _left_out_table()]


def _papers() -> str:
    """Return a sentence on the papers that the names of recipes begin with."""
    sources = {name.partition("/")[0]: read_recipe(name).source for name in recipe_names()}
    return f"Papers: {'; '.join(f'{name}: {source}' for name, source in sources.items())}."


def _content_table(name: str) -> Table:
    """Return the rules of a recipe, with its claim and its choices."""
    recipe = read_recipe(name)
    rows: list[Row] = [[rule.words] for rule in recipe.rules]
    head = f"The paper, {recipe.source}, claims: {recipe.claim}"
    choices = "What the paper leaves open, and what deviates from it:"
    notes = (head, choices, *(f"- {choice}" for choice in recipe.choices))
    return Table([Column("rule")], rows, notes=notes)


def _left_out_table() -> Table:
    rows: list[Row] = [[name, why] for name, why in LEFT_OUT.items()]
    return Table([Column("no recipe"), Column("reason", left=True)], rows)


def run_count(recipe: Recipe, scale: ScaleName, seeds: Sequence[int] | None = None) -> int:
    """Return the number of runs; with `alone`, each task counts."""
    if recipe.bandit:
        settings = {**recipe.bandit, **recipe.scale(scale).bandit}
        return len(recipe.contestants) * settings["environments"] * settings["seeds"]
    return sum(plan.runs for plan in _plans(recipe, scale, seeds, ()))


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def dry_run(
    names: Sequence[str] = (),
    scale: ScaleName = "small",
    *,
    seeds: Sequence[int] | None = None,
    data: str | None = None,
    encoder: str | None = None,
    sets: Sequence[str] = (),
) -> DryRun:
    """Return what recipes cost, all of them if none is named; nothing is trained.

    Args:
        names: of the recipes.
        scale: `small` or `paper`.
        seeds: other seeds than the recipes'.
        data: the folder of the official data sets; None means the environment's TASKMIX_DATA.
        encoder: a hub name or folder in place of the recipes' encoders.
        sets: changes of the run files, as in `taskmix run --set`.
    """
    for name in names if len(names) == 1 else ():
        read_recipe(name).check_options(seeds=seeds, encoder=encoder, sets=sets)
    costs = {}
    for name in names or recipe_names():
        recipe = read_recipe(name)
        changes = [*sets, *machine_sets(recipe, scale, data, encoder)]
        costs[name] = cost_of(recipe, scale, seeds, changes)
    return DryRun(scale, costs, training_speed())


def cost_of(
    recipe: Recipe, scale: ScaleName, seeds: Sequence[int] | None = None, sets: Sequence[str] = ()
) -> Cost:
    """Return the cost of a recipe."""
    runs = run_count(recipe, scale, seeds)
    if recipe.bandit:
        steps = recipe.scale(scale).bandit.get("steps", recipe.bandit.get("steps", 0))
        return Cost(None, runs, runs * steps, None, None)
    plans = list(_plans(recipe, scale, seeds, sets))
    try:
        costs = [(plan.runs * plan.part, *_run_cost(plan)) for plan in plans]
    except UserError as error:
        return Cost(None, runs, None, None, None, str(error))
    known = all(flops is not None for *_, flops in costs)
    return Cost(
        max(rows for _, rows, _, _ in costs),
        runs,
        round(sum(times * steps for times, _, steps, _ in costs)),
        sum(times * (flops or 0.0) for times, *_, flops in costs) if known else None,
        max((_memory(plan.config) for plan in plans), default=None) if known else None,
    )


def _plans(
    recipe: Recipe, scale: ScaleName, seeds: Sequence[int] | None, sets: Sequence[str]
) -> Iterator[_Plan]:
    """Yield what is run; no data are read."""
    adaptation, count = recipe.scale(scale).adapt, len(seeds or recipe.scale(scale).seeds)
    for panel in recipe.panels_of(scale):
        for target in recipe.targets or ("",):
            config = recipe.config(scale, target, panel, sets)
            if recipe.autosem is not None:
                yield from _autosem_plans(recipe, scale, target, config, count)
                continue
            if adaptation is not None:
                yield _Plan(count, config)
                for task in adaptation.tasks:
                    new = adapted_config(config, task, sets=adaptation.sets)
                    for fraction in filter(None, adaptation.fractions):
                        yield _Plan(count * len(recipe.contestants), new, fraction)
                continue
            for spec in recipe.contestants_of(scale, target).values():
                if spec == ALONE:
                    tasks = len(config.tasks)
                    yield _Plan(count * tasks, contestant_config(config, spec), part=1 / tasks)
                elif "learned_from" in spec:
                    yield _Plan(count, config)
                else:
                    yield _Plan(count, contestant_config(config, spec))


def _autosem_plans(
    recipe: Recipe, scale: ScaleName, target: str, config: RunConfig, seeds: int
) -> Iterator[_Plan]:
    """Yield the runs of AutoSeM: each study ends with the best ratio and with the primary alone."""
    for name, spec in recipe.contestants.items():
        if spec == ALONE:
            continue  # the second of the final trainings
        settings = AutosemSettings(**recipe.autosem_settings(scale, name, target))
        if settings.without != "selection":
            rounds = settings.rounds * settings.batches
            yield _Plan(1, config, part=rounds / config.budget.steps)
        yield _Plan(settings.trials, config, part=settings.trial_budget)
        yield _Plan(2 * seeds, config)


def _run_cost(plan: _Plan) -> tuple[int, float, float | None]:
    """Return the training rows, the steps and the operations of a run."""
    from taskmix.training.prepare import run_info_before, with_steps

    config = plan.config if plan.fraction == 1 else with_fraction(plan.config, plan.fraction)
    config = with_steps(config)
    info = run_info_before(config)
    rows, batch = sum(info.sizes.values()), config.budget.batch
    decider = build_decider(config, info)
    examples = config.family.load_driver().expected_examples(decider, config, info.sizes)
    steps = sum(examples.values()) / batch
    scored = 0.0
    if isinstance(decider, Selector):
        scored = steps * sum(decider.candidates().values()) / decider.every
    work = multiplications(config.model_spec)
    flops = None if work is None else work * (6 * steps * batch + 2 * scored)
    return rows, steps, flops


def same_size(recipe: Recipe, scale: ScaleName, sets: Sequence[str]) -> bool:
    """Return whether changes leave the encoder's layers and width, as far as they are known."""
    ours, other = (_shape(recipe.first_config(scale, changes).model_spec) for changes in ((), sets))
    return ours is not None and other is not None and ours[:2] == other[:2]


def _shape(spec: "ModelSpec") -> tuple[int, int, float] | None:
    """Return layers, width and parameters of a known encoder, or of one in a folder."""
    name = str(spec.over if spec.encoder == "bilstm" else spec.encoder or "minilm")
    file = Path(name).expanduser() / "config.json"
    if file.is_file():
        return _shape_in(file, spec.layers)
    for known, (layers, width, parameters) in _SHAPES.items():
        if name.rpartition("/")[2].startswith(known):
            return spec.layers or layers, width, parameters
    return None


def _shape_in(file: Path, kept: int | None) -> tuple[int, int, float] | None:
    """Return layers (of which only some may be kept), width and parameters by a configuration."""
    try:
        values = json.loads(file.read_bytes())
        layers, width, vocabulary = (int(values[key]) for key in _SIZES)
    except (ValueError, KeyError, TypeError):  # of a model of another kind
        return None
    return kept or layers, width, float(width * (vocabulary + 12 * layers * width))


def multiplications(spec: "ModelSpec") -> float | None:
    """Return the multiplications of a forward pass of an example of the maximum length."""
    if (shape := _shape(spec)) is None:
        return None
    layers, width, _ = shape
    return float(spec.max_length * layers * (12 * width**2 + 2 * spec.max_length * width))


def _memory(config: RunConfig) -> float:
    """Return the bytes of a run: weights, gradients, AdamW's moments, and activations."""
    shape = _shape(config.model_spec)
    assert shape is not None  # the operations are known
    layers, width, parameters = shape
    length = config.model.max_length
    activations = layers * length * (68 * width + 10 * length * width / 64)
    return 16 * parameters + config.budget.batch / config.budget.accumulate * activations


@cache
def training_speed() -> float:
    """Measure this machine's speed of training, in floating-point operations a second."""
    import torch

    from taskmix.training.loading import pick_device

    device = pick_device("auto")
    size = 512 if device.type == "cpu" else 4096
    matrix = torch.rand(size, size, device=device)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(4):
            product = matrix @ matrix
        product.sum().item()  # waits for the device
        best = min(best, time.perf_counter() - began)
    return _UTILISATION * 4 * 2 * size**3 / best
