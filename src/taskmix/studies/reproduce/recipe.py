"""Recipes: the study files of the papers' experiments in `taskmix.recipes`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from taskmix.config import RunConfig, parse, read_yaml, with_sets
from taskmix.errors import UserError, explain, unknown
from taskmix.studies.contestants import ALONE, merged
from taskmix.studies.paired import Difference
from taskmix.studies.reproduce.measures import MEASURES
from taskmix.studies.verdict import RELEVANT

ScaleName = Literal["small", "paper"]
Values = Mapping[str, Mapping[int, float]]
"""By series (a contestant, in a panel, by a measure) and seed; in a bandit, by environment."""
SEEDS_APART = 1000
"""Added to the seeds of each further target, so that pairs of target and seed differ."""
_TARGET = "{target}"
_EXPECTED = {
    "above": "is above",
    "below": "is below",
    "equal": "does not differ from",
    "not_below": "is not below",
}
_TEST_SETS = "scores of the GLUE test server; `taskmix predict` writes the files for it"
LEFT_OUT = {
    "counterfactual/figure2": "the curves of counterfactual/table1; `taskmix report` with its "
    "folder draws them",
    "counterfactual/table2": _TEST_SETS,
    "counterfactual/table3": "the learned shares are part of counterfactual/table1",
    "autosem/table1": f"{_TEST_SETS}; autosem/table3 has the dev scores of the same five tasks",
    "camtl/table2": f"{_TEST_SETS}; camtl/table1 and camtl/table10 have the dev scores",
    "camtl/table5": "published scores of other systems; those of CA-MTL are of camtl/table4",
    "camtl/table6": "published scores of other systems on test sets; `taskmix run` with "
    "examples/camtl-24.yaml and `taskmix adapt` train the models, and `taskmix evaluate --split "
    "test` scores them",
    "camtl/table9": "the scores by task of camtl/table1 and camtl/table4, which print them",
}
"""Results of the papers that have no recipe, and the reason."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Section):
    """A statement that the results have to confirm, by a paired t-test over the seeds.

    Args:
        contestant: a series of values.
        against: the series that it is compared with.
        expect: `above` and `below` hold if the difference is significant at 5%, `equal` if its 95%
            interval is within a point, `not_below` if the interval's lower end is.
    """

    contestant: str
    against: str
    expect: Literal["above", "below", "equal", "not_below"]

    @property
    def words(self) -> str:
        """The rule in words; the same contestant is named once.

        >>> Rule(contestant="a: glue/mnli", against="a: glue/rte", expect="above").words
        'a: glue/mnli is above glue/rte'
        """
        name, colon, _ = self.contestant.partition(": ")
        against = self.against.removeprefix(name + colon) if colon else self.against
        return f"{self.contestant} {_EXPECTED[self.expect]} {against}"

    def holds(self, difference: Difference) -> bool:
        """Return whether a tested difference confirms the rule.

        That two contestants do not differ takes evidence too: too few seeds must not confirm it.
        """
        assert difference.low is not None  # it is tested
        assert difference.high is not None
        side = difference.mean if difference.significant else 0.0
        return {
            "above": side > 0,
            "below": side < 0,
            "equal": difference.low > -RELEVANT and difference.high < RELEVANT,
            "not_below": difference.low > -RELEVANT,
        }[self.expect]


class Adaptation(_Section):
    """Adaptation of a trained conditioned model to new tasks.

    Args:
        tasks: the new tasks, each in turn.
        fractions: of their training rows; 0 scores the embeddings of the other tasks zero-shot.
        sets: changes of the run file for the adaptation, such as `budget.steps=200`.
    """

    tasks: tuple[str, ...]
    fractions: tuple[float, ...]
    sets: tuple[str, ...] = ()


class TargetChanges(_Section):
    """Changes of the run file and of the settings of AutoSeM for one of the targets."""

    run: dict[str, Any] = {}
    autosem: dict[str, Any] = {}


class Scale(_Section):
    """The size of an experiment: the part of the recipe that it sets."""

    seeds: tuple[int, ...] = (1,)
    run: dict[str, Any] = {}
    contestants: dict[str, Any] = {}
    panels: dict[str, dict[str, Any]] = {}
    bandit: dict[str, int] = {}
    autosem: dict[str, Any] = {}
    adapt: Adaptation | None = None
    by_target: dict[str, TargetChanges] = {}


class Recipe(_Section):
    """An experiment of a paper.

    An experiment is a comparison, unless it has a section `bandit`, `autosem` or `adapt`.

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
        reported: the paper's values by series, in percent.
        reported_by_task: the paper's values by series and task, in percent.
        choices: what the paper leaves open, and what we chose.
        targets: tasks that are the target in turn, in place of `{target}`; a pair of target and
            seed counts as a seed.
        panels: changes of the run file, by name; all contestants run in each.
        measures: what is measured of a run, and of which contestants; of all if none is named.
        bandit: settings of the synthetic bandit; such an experiment trains no model.
        autosem: settings of AutoSeM; the contestants are `alone` and changes of the settings.
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
    reported_by_task: dict[str, dict[str, float]] = {}
    choices: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    panels: dict[str, dict[str, Any]] = {}
    measures: dict[str, tuple[str, ...]] = {"score": ()}
    bandit: dict[str, int] = {}
    autosem: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _known_measures(self) -> "Recipe":
        for name in self.measures:
            if name not in MEASURES:
                raise ValueError(f"measures: expected {', '.join(MEASURES)}, found {name}")
        return self

    def scale(self, name: ScaleName) -> Scale:
        return self.small if name == "small" else self.paper

    def panels_of(self, scale: ScaleName) -> dict[str, dict[str, Any]]:
        """Return the changes of the run file by panel; one without a name if there are none."""
        return {**self.panels, **self.scale(scale).panels} or {"": {}}

    def first_config(self, scale: ScaleName, sets: Sequence[str] = ()) -> RunConfig:
        """Return the run file of the first target and panel."""
        panel = next(iter(self.panels_of(scale)))
        return self.config(scale, (*self.targets, "")[0], panel, sets)

    def config(
        self, scale: ScaleName, target: str = "", panel: str = "", sets: Sequence[str] = ()
    ) -> RunConfig:
        """Return the run file of a size, with one of the targets, in one of the panels."""
        values = merged(merged(self.run, self.scale(scale).run), self.panels_of(scale)[panel])
        values = merged(values, self._changes(scale, target).run)
        return with_sets(parse(_with_target(values, target), self.title), sets)

    def check_options(self, *, seeds: Sequence[int] | None, **of_models: Any) -> None:
        """Raise if an option is given that the experiment does not have."""
        for name, value in {"seeds": seeds, **of_models}.items():
            if self.bandit and value:
                raise UserError(f"{name}: expected a recipe that trains a model, found a bandit")
        for seed in seeds or ():
            if seed >= SEEDS_APART:
                raise UserError(f"seeds: expected numbers below {SEEDS_APART}, found {seed}")

    def _changes(self, scale: ScaleName, target: str) -> TargetChanges:
        return self.scale(scale).by_target.get(target, TargetChanges())

    def contestants_of(self, scale: ScaleName, target: str = "") -> dict[str, Any]:
        """Return the contestants of a size; a mapping has its name as `as`."""
        specs = _with_target({**self.contestants, **self.scale(scale).contestants}, target)
        return {name: spec if spec == ALONE else _named(spec, name) for name, spec in specs.items()}

    def fingerprint(self, scale: ScaleName, sets: Sequence[str] = ()) -> str:
        """Return a hash of the settings at a size; values with another hash are not comparable.

        The rules, the texts and the seeds do not count, nor does the place of the data.
        """
        size = self.scale(scale)
        settings = {
            "run": merged(self.run, size.run),
            "contestants": {**self.contestants, **size.contestants},
            "panels": self.panels_of(scale),
            "targets": self.targets,
            "bandit": {**self.bandit, **size.bandit},
            "autosem": None if self.autosem is None else {**self.autosem, **size.autosem},
            "adapt": size.adapt and size.adapt.model_dump(),
            "sets": list(sets),
        }
        if size.by_target:
            settings["by_target"] = {key: c.model_dump() for key, c in size.by_target.items()}
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def autosem_settings(self, scale: ScaleName, contestant: str, target: str) -> dict[str, Any]:
        """Return the settings of a contestant of an AutoSeM experiment."""
        shared = {**(self.autosem or {}), **self.scale(scale).autosem}
        return {**shared, **self._changes(scale, target).autosem, **self.contestants[contestant]}

    def tasks_apart(self, scale: ScaleName) -> tuple[str, ...]:
        """Return the tasks that take turns, so that a value belongs to a seed and a task."""
        adaptation = self.scale(scale).adapt
        if adaptation is None:
            return self.targets
        return adaptation.tasks if any(adaptation.fractions) else ()  # zero-shot series have a task


def _named(spec: Any, name: str) -> dict[str, Any]:
    return {**({"name": spec} if isinstance(spec, str) else spec), "as": name}


def _with_target(values: Any, target: str) -> Any:
    """Return nested values with the target in place of `{target}`."""
    if isinstance(values, Mapping):
        return {key: _with_target(value, target) for key, value in values.items()}
    if isinstance(values, list):
        return [_with_target(value, target) for value in values]
    return target if values == _TARGET else values


def series_name(contestant: str, panel: str = "", part: str = "") -> str:
    """Return the name of a series.

    >>> series_name("plain"), series_name("plain", "all tasks"), series_name("plain", "", "sigma")
    ('plain', 'plain, all tasks', 'plain: sigma')
    """
    name = f"{contestant}, {panel}" if panel else contestant
    return f"{name}: {part}" if part else name


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


def machine_sets(
    recipe: Recipe, scale: ScaleName, data: str | None, encoder: str | None
) -> list[str]:
    """Return the changes of the run file that say where a machine has its data and its encoder."""
    sets = [] if data is None else [f"data={json.dumps(str(Path(data).resolve()))}"]
    if encoder is None or recipe.bandit:
        return sets
    model = recipe.first_config(scale).model
    if model.encoder == "lenet":
        raise UserError("encoder: expected a recipe that reads texts, found one of images")
    key = "model.over" if model.encoder == "bilstm" else "model.encoder"
    return [*sets, f"{key}={json.dumps(_place_of(encoder))}"]


def _place_of(encoder: str) -> str:
    """Return the whole path of a folder; a hub name as it is."""
    folder = Path(encoder).expanduser()
    if folder.is_dir():
        return str(folder.resolve())
    if encoder.startswith(("/", ".", "~")) or encoder.count("/") > 1:  # not `owner/model`
        raise UserError(f"encoder: expected a folder or a hub name, found no folder {encoder}")
    return encoder
