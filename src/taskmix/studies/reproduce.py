"""Reproduce the papers' experiments from the study files in `taskmix.recipes`."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from taskmix.config import RunConfig, parse, read_yaml, with_sets
from taskmix.errors import UserError, explain, unknown
from taskmix.files import write_whole
from taskmix.studies.compare import compare
from taskmix.studies.contestants import merged
from taskmix.studies.paired import Difference, differences, p_words
from taskmix.tables import Column, Row, Table, Tabled

if TYPE_CHECKING:
    from taskmix.studies.comparison import Comparison
    from taskmix.training.watching import Watcher

ScaleName = Literal["small", "paper"]
Values = Mapping[str, Mapping[int, float]]
"""By contestant and seed; in a bandit, by environment."""
RESULT = "reproduction.json"
_TARGET = "{target}"
_SEEDS = 1000
"""Added to the seeds of each further target, so that pairs of target and seed differ."""
_EXPECTED = {
    "above": "is above",
    "below": "is below",
    "equal": "does not differ from",
    "not_below": "is not below",
}
LEFT_OUT = {
    "counterfactual/table2": "scores of the GLUE test server, which needs predictions of test sets",
    "counterfactual/table3": "the learned shares; `taskmix improve` prints them for a run",
    "autosem/table1": "test scores, as above; the dev scores are in experiments/autosem_glue",
    "autosem/table3": "a study with stages; experiments/autosem_glue runs it",
    "active/figure3": "curves of the smoothing; a run's report shows them",
    "camtl/figure7": "its arms differ in their tasks; experiments/camtl runs it",
    "camtl/table3": "few-shot adaptation; `taskmix adapt` and experiments/camtl run it",
}
"""Experiments of the papers that have no recipe, and the reason."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Section):
    """A statement that the results have to confirm, by a paired t-test over the seeds."""

    contestant: str
    against: str
    expect: Literal["above", "below", "equal", "not_below"]

    @property
    def words(self) -> str:
        return f"{self.contestant} {_EXPECTED[self.expect]} {self.against}"

    def holds(self, difference: Difference) -> bool:
        side = difference.mean if difference.significant else 0.0
        return {
            "above": side > 0,
            "below": side < 0,
            "equal": side == 0,
            "not_below": side >= 0,
        }[self.expect]


class Scale(_Section):
    """The size of an experiment: the part of the run file and of the contestants that it sets."""

    seeds: tuple[int, ...] = (1,)
    run: dict[str, Any] = {}
    contestants: dict[str, Any] = {}
    bandit: dict[str, int] = {}


class Recipe(_Section):
    """An experiment of a paper.

    Args:
        title: the table or figure.
        source: authors and year.
        claim: what the paper says.
        rules: what the results have to show; written before the runs.
        contestants: as `compare` takes them, by name; `{learned_from: NAME, entropy_weight: …}` is
            the counterfactual policy that is learned from the run of another contestant.
        small: a size for two cores.
        paper: the paper's settings.
        run: the run file that both sizes share.
        reported: the paper's values by contestant, in percent.
        choices: what the paper leaves open, and what we chose.
        targets: tasks that are the target in turn, in place of `{target}`.
        bandit: settings of the synthetic bandit; such an experiment trains no model.
    """

    title: str
    source: str
    claim: str
    rules: tuple[Rule, ...]
    contestants: dict[str, Any]
    small: Scale
    paper: Scale
    run: dict[str, Any] = {}
    reported: dict[str, float] = {}
    choices: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    bandit: dict[str, int] = {}

    def scale(self, name: ScaleName) -> Scale:
        return self.small if name == "small" else self.paper

    def config(self, scale: ScaleName, target: str = "", sets: Sequence[str] = ()) -> RunConfig:
        """Return the run file of a size, with one of the targets."""
        values = _with_target(merged(self.run, self.scale(scale).run), target)
        return with_sets(parse(values, self.title), sets)

    def contestants_of(self, scale: ScaleName, target: str = "") -> dict[str, dict[str, Any]]:
        """Return the contestants of a size, each with its name as `as`."""
        specs = _with_target({**self.contestants, **self.scale(scale).contestants}, target)
        named = {k: {"name": v} if isinstance(v, str) else v for k, v in specs.items()}
        return {name: {**spec, "as": name} for name, spec in named.items()}


def _with_target(values: Any, target: str) -> Any:
    """Return nested values with the target in place of `{target}`."""
    if isinstance(values, Mapping):
        return {key: _with_target(value, target) for key, value in values.items()}
    if isinstance(values, list):
        return [_with_target(value, target) for value in values]
    return target if values == _TARGET else values


def recipe_names() -> list[str]:
    """Return the names of all recipes, such as `camtl/table1`."""
    folder = Path(str(files("taskmix") / "recipes"))
    return sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml"))


def read_recipe(name: str) -> Recipe:
    """Return a recipe of the package."""
    if name in LEFT_OUT:
        raise UserError(f"{name}: there is no recipe: {LEFT_OUT[name]}")
    if name not in recipe_names():
        raise unknown("recipe", name, recipe_names(), "reproduce")
    path = Path(str(files("taskmix") / "recipes")) / f"{name}.yaml"
    try:
        return Recipe(**read_yaml(path))
    except ValidationError as error:
        raise UserError(f"{path.name}: {explain(error)}") from None


@dataclass(frozen=True)
class Check:
    """A rule with the difference that was measured; None if there are no runs for it."""

    rule: Rule
    difference: Difference | None

    @property
    def holds(self) -> bool | None:
        tested = self.difference is not None and self.difference.p is not None
        return self.rule.holds(self.difference) if self.difference and tested else None


@dataclass(frozen=True, repr=False)
class Reproduction(Tabled):
    """The results of a recipe beside those of the paper.

    Args:
        name: of the recipe.
        scale: the size that was run.
        values: by contestant and seed, between 0 and 1.
        seconds: of training.
    """

    name: str
    scale: ScaleName
    values: Values
    seconds: float

    @property
    def recipe(self) -> Recipe:
        return read_recipe(self.name)

    def checks(self) -> list[Check]:
        return [Check(rule, self._difference(rule)) for rule in self.recipe.rules]

    def _difference(self, rule: Rule) -> Difference | None:
        pair = {name: self.values.get(name, {}) for name in (rule.against, rule.contestant)}
        return differences(pair, rule.against).get(rule.contestant)

    def verdict(self) -> str:
        """Return `reproduced`, `not reproduced` or `not comparable`, with the reason."""
        held = [check.holds for check in self.checks()]
        if None in held:
            return "not comparable: too few seeds for a test"
        count = f"{sum(map(bool, held))} of {len(held)} rules hold"
        return f"{'reproduced' if all(held) else 'not reproduced'}: {count}"

    def tables(self) -> list[Table]:
        return [self.values_table(), self.rules_table()]

    def values_table(self) -> Table:
        recipe = self.recipe
        rows: list[Row] = [
            [name, 100 * sum(v.values()) / len(v), recipe.reported.get(name), len(v)]
            for name, v in self.values.items()
        ]
        columns = [Column("contestant"), Column("ours", ".1f"), Column("paper", ".1f")]
        runs = "bandits" if recipe.bandit else "runs"
        return Table([*columns, Column(runs, ".0f")], rows, f"{recipe.source}, {recipe.title}")

    def rules_table(self) -> Table:
        rows: list[Row] = [_rule_row(check) for check in self.checks()]
        columns = [Column("rule"), Column("difference", left=True), Column("p"), Column("result")]
        return Table(columns, rows, notes=(self.recipe.claim, f"Verdict: {self.verdict()}."))

    def line(self) -> Row:
        """Return the row of this experiment in a table of all."""
        recipe = self.recipe
        shown = {name: sum(v.values()) / len(v) for name, v in self.values.items()}
        ours = ", ".join(f"{name} {100 * value:.1f}" for name, value in shown.items())
        paper = ", ".join(f"{name} {value:.1f}" for name, value in recipe.reported.items())
        minutes = f"{self.seconds / 60:,.1f} min"
        return [self.name, recipe.claim, paper or None, ours, self.verdict(), minutes]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _rule_row(check: Check) -> Row:
    difference = check.difference
    result = {True: "held", False: "not held", None: "not tested"}[check.holds]
    if difference is None:
        return [check.rule.words, None, None, result]
    p = p_words(difference) if difference.p is not None else None
    return [check.rule.words, f"{100 * difference.mean:+.1f}", p, result]


def reproduce(
    name: str,
    scale: ScaleName = "small",
    *,
    out: Path | str | None = None,
    seeds: Sequence[int] | None = None,
    workers: int = 1,
    data: str | None = None,
    sets: Sequence[str] = (),
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Reproduction:
    """Run an experiment of a paper and compare the results with it.

    Finished runs are not run again, so a recipe can be stopped and resumed.

    Args:
        name: of the recipe, such as `camtl/table1`.
        scale: `small` for two cores, or `paper` for the paper's settings.
        out: the folder of the runs; `studies/reproduce/NAME-SCALE` if None.
        seeds: other seeds than the recipe's.
        workers: processes on this machine.
        data: the folder of the official data sets; None means the environment's TASKMIX_DATA.
        sets: changes of the run file, as in `taskmix run --set`.
        watch: a function that creates the watcher of a run.
    """
    recipe, began = read_recipe(name), time.monotonic()
    folder = Path(out or Path("studies/reproduce") / f"{name.replace('/', '-')}-{scale}")
    if recipe.bandit:
        values, seconds = _bandit(recipe, scale, workers), time.monotonic() - began
    else:
        run = _Study(recipe, scale, folder, seeds or recipe.scale(scale).seeds, workers, watch)
        data_set = [] if data is None else [f"data={json.dumps(str(Path(data).resolve()))}"]
        values, seconds = run.all_targets([*sets, *data_set])
    result = Reproduction(name, scale, values, round(seconds, 1))
    write_whole(folder / RESULT, json.dumps(result.to_json(), indent=2) + "\n")
    return result


@dataclass(frozen=True)
class _Study:
    recipe: Recipe
    scale: ScaleName
    folder: Path
    seeds: Sequence[int]
    workers: int
    watch: "Callable[[RunConfig, str], Watcher] | None"

    def all_targets(self, sets: Sequence[str]) -> tuple[Values, float]:
        """Run each target; return the values by contestant and pair of target and seed."""
        values: dict[str, dict[int, float]] = {}
        seconds = 0.0
        for number, target in enumerate(self.recipe.targets or ("",)):
            folder = self.folder / target.replace("/", "-") if target else self.folder
            comparison = self.compared(self.recipe.config(self.scale, target, sets), target, folder)
            for name in self.recipe.contestants:
                pairs = zip(comparison.seeds[name], comparison.outcome(name), strict=True)
                of_name = values.setdefault(name, {})
                of_name.update({_SEEDS * number + seed: value for seed, value in pairs})
            seconds += sum(map(sum, comparison.seconds.values()))
        return values, seconds

    def compared(self, config: RunConfig, target: str, folder: Path) -> "Comparison":
        specs = self.recipe.contestants_of(self.scale, target)
        plain = [spec for spec in specs.values() if "learned_from" not in spec]
        comparison = self._run(config, plain, self.seeds, folder)
        for spec in specs.values():
            if "learned_from" in spec:
                for seed in self.seeds:
                    learned = _learned(spec, comparison, seed)
                    comparison = self._run(config, [learned], [seed], folder)
        return comparison

    def _run(
        self, config: RunConfig, specs: Sequence[Any], seeds: Sequence[int], folder: Path
    ) -> "Comparison":
        return compare(config, specs, seeds, folder, workers=self.workers, watch=self.watch)


def _learned(spec: Mapping[str, Any], comparison: "Comparison", seed: int) -> dict[str, Any]:
    """Return the counterfactual policy that is learned from another contestant's run."""
    import warnings

    from taskmix.offpolicy import FarPolicyWarning, Log, improve

    source = spec["learned_from"]
    folders = dict(zip(comparison.seeds[source], comparison.folders[source], strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarPolicyWarning)  # the paper's λ is small for one log
        policy = improve(Log.from_journal(folders[seed]), spec["entropy_weight"])
    shares = dict(zip(policy.tasks, policy.probabilities().tolist(), strict=True))
    return {"name": "fixed", "probabilities": shares, "as": spec["as"]}


def _bandit(recipe: Recipe, scale: ScaleName, workers: int) -> Values:
    """Return the final score of each policy by bandit: the median over seeds."""
    from taskmix.bandit import CONTENDERS
    from taskmix.bandit import compare as compare_in_bandit
    from taskmix.studies.counterfactual_bandit import counterfactual_curves

    settings = {**recipe.bandit, **recipe.scale(scale).bandit}
    names = [name for name in recipe.contestants if name in CONTENDERS]
    makers = {name: CONTENDERS[name] for name in names}
    played = compare_in_bandit(makers, **settings, workers=workers)
    values = {name: dict(enumerate(played.medians(name).tolist())) for name in names}
    if "counterfactual" in recipe.contestants:
        finals = counterfactual_curves(**settings, seed=0)[:, :, -1]
        values["counterfactual"] = {e: median(scores) for e, scores in enumerate(finals.tolist())}
    return {name: values[name] for name in recipe.contestants}


@dataclass(frozen=True, repr=False)
class RecipeList(Tabled):
    """The recipes of the package, and the experiments without one."""

    scale: ScaleName = "small"

    def tables(self) -> list[Table]:
        rows: list[Row] = [_cost_row(name, self.scale) for name in recipe_names()]
        columns = [Column("recipe"), Column("experiment", left=True), Column("runs", ".0f")]
        columns += [Column("steps or rounds a run", ",.0f"), Column("in all", ",.0f")]
        left_out: list[Row] = [[name, why] for name, why in LEFT_OUT.items()]
        return [
            Table(columns, rows, f"Recipes at scale {self.scale}"),
            Table([Column("no recipe"), Column("reason", left=True)], left_out),
        ]


def _cost_row(name: str, scale: ScaleName) -> Row:
    recipe = read_recipe(name)
    title = f"{recipe.source}: {recipe.title}"
    if recipe.bandit:
        settings = {**recipe.bandit, **recipe.scale(scale).bandit}
        runs = len(recipe.contestants) * settings["environments"] * settings["seeds"]
        return [name, title, runs, settings["steps"], runs * settings["steps"]]
    targets = recipe.targets or ("",)
    specs = recipe.contestants_of(scale, targets[0])
    config = recipe.config(scale, targets[0])
    is_weighting = any("target" in spec for spec in specs.values())
    length = config.budget.rounds if is_weighting else config.budget.steps
    runs = len(specs) * len(recipe.scale(scale).seeds) * len(targets)
    return [name, title, runs, length, runs * length]


def read_reproductions(path: Path) -> list[Reproduction]:
    """Return the stored results of a JSON Lines file, in the order of the recipes."""
    if not path.exists():
        raise UserError(f"{path}: expected a file of stored reproductions, found none")
    results = [_from_json(line, path) for line in path.read_text().splitlines()]
    return sorted(results, key=lambda result: result.name)


def _from_json(line: str, path: Path) -> Reproduction:
    try:
        stored = json.loads(line)
        values = {
            name: {int(seed): float(value) for seed, value in of_name.items()}
            for name, of_name in stored["values"].items()
        }
        return Reproduction(stored["name"], stored["scale"], values, stored["seconds"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: expected a reproduction in each line, found {error}") from None


def store(result: Reproduction, path: Path) -> None:
    """Write a result to a JSON Lines file, in place of an earlier one of the same recipe."""
    others = read_reproductions(path) if path.exists() else []
    kept = [o for o in others if (o.name, o.scale) != (result.name, result.scale)]
    lines = [json.dumps(o.to_json()) for o in sorted([*kept, result], key=lambda o: o.name)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "\n".join(lines) + "\n")


@dataclass(frozen=True, repr=False)
class Reproductions(Tabled):
    """Stored results of recipes, one row for each experiment."""

    results: Sequence[Reproduction]

    def tables(self) -> list[Table]:
        headings = ("recipe", "claim", "paper", "ours", "verdict", "cost")
        columns = [Column(heading, left=True) for heading in headings]
        return [Table(columns, [result.line() for result in self.results])]
