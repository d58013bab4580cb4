"""The results of recipes beside the papers', and their storage."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.studies.paired import SCORES, Difference, differences, interval_words, p_words
from taskmix.studies.reproduce.measures import OF_TASK
from taskmix.studies.reproduce.recipe import (
    SEEDS_APART,
    Recipe,
    Rule,
    ScaleName,
    Values,
    read_recipe,
)
from taskmix.tables import Column, Row, Table, TableCell, Tabled


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
        values: by series and seed, between 0 and 1.
        seconds: of training.
        settings: the fingerprint of what was run.
    """

    name: str
    scale: ScaleName
    values: Values
    seconds: float
    settings: str

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
        if self.settings != self.recipe.fingerprint(self.scale):
            return "not comparable: run with other settings than those of the recipe"
        held = [check.holds for check in self.checks()]
        if None in held:
            return "not comparable: too few seeds for a test, --seeds adds more"
        if len(held) == 1:
            return "reproduced: its rule holds" if held[0] else "not reproduced: its rule fails"
        count = f"{sum(map(bool, held))} of {len(held)} rules hold"
        return f"{'reproduced' if all(held) else 'not reproduced'}: {count}"

    def tables(self) -> list[Table]:
        by_task = [self.tasks_table()] if self._by_task() else []
        return [self.values_table(), *by_task, self.rules_table()]

    def values_table(self) -> Table:
        recipe = self.recipe
        rows: list[Row] = [
            [name, 100 * fmean(v.values()), recipe.reported.get(name), len(v)]
            for name, v in self.values.items()
            if not name.endswith(OF_TASK)
        ]
        columns = [Column("contestant"), Column("ours", ".1f"), Column("paper", ".1f")]
        runs = "bandits" if recipe.bandit else "runs"
        table = Table([*columns, Column(runs, ".0f")], rows, f"{recipe.source}, {recipe.title}")
        return table if recipe.reported else table.with_columns([0, 1, 3])

    def tasks_table(self) -> Table:
        """Return the mean value of each series and task, with the paper's."""
        by_task, reported = self._by_task(), self.recipe.reported_by_task
        series = list(dict.fromkeys(name for of_task in by_task.values() for name in of_task))
        rows: list[Row] = [
            [task, *(_beside(of_task.get(s), reported.get(s, {}).get(task)) for s in series)]
            for task, of_task in by_task.items()
        ]
        columns = [Column("task"), *(Column(name, left=True) for name in series)]
        return Table(columns, rows, "By task: ours (the paper's)")

    def _by_task(self) -> dict[str, dict[str, float]]:
        """Return mean values by task and series, where they are known by task."""
        tasks = self.recipe.tasks_apart(self.scale)
        found: dict[str, dict[str, float]] = {}
        for name, values in self.values.items():
            if name.endswith(OF_TASK):
                series, _, task = name.removesuffix(OF_TASK).rpartition(": ")
                found.setdefault(task, {})[series] = fmean(values.values())
            for number, task in enumerate(tasks if len(tasks) > 1 else ()):
                of_task = [v for seed, v in values.items() if seed // SEEDS_APART == number]
                if of_task:
                    found.setdefault(task, {})[name] = fmean(of_task)
        return found

    def rules_table(self) -> Table:
        rows: list[Row] = [_rule_row(check) for check in self.checks()]
        columns = [Column("rule", left=True), *map(Column, ("difference", "p", "result"))]
        cost = f"The runs took {self._minutes()}, summed over the workers."
        return Table(columns, rows, notes=(self.recipe.claim, cost, f"Verdict: {self.verdict()}."))

    def _minutes(self) -> str:
        return f"{self.seconds / 60:,.1f} min"

    def line(self) -> Row:
        """Return the row of this experiment in a table of all."""
        recipe = self.recipe
        named = {name for rule in recipe.rules for name in (rule.contestant, rule.against)}
        shown = {n: sum(v.values()) / len(v) for n, v in self.values.items() if n in named}
        ours = ", ".join(f"{name} {100 * value:.1f}" for name, value in shown.items())
        reported = {name: value for name, value in recipe.reported.items() if name in named}
        paper = ", ".join(f"{name} {value:.1f}" for name, value in reported.items())
        seeds = max((len(self.values[name]) for name in shown), default=0)
        cost = self._minutes()
        return [self.name, recipe.claim, paper or None, ours, seeds, self.verdict(), cost]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _beside(ours: float | None, paper: float | None) -> TableCell | None:
    """Return our value with the paper's."""
    if ours is None:
        return None
    text = f"{100 * ours:.1f}"
    return TableCell(text if paper is None else f"{text} ({paper:.1f})", ours)


def _rule_row(check: Check) -> Row:
    difference = check.difference
    result = {True: "held", False: "not held", None: "not tested"}[check.holds]
    if difference is None:
        return [check.rule.words, None, None, result]
    p = p_words(difference) if difference.p is not None else None
    return [check.rule.words, interval_words(difference, SCORES), p, result]


@dataclass(frozen=True, repr=False)
class Reproductions(Tabled):
    """Stored results of recipes, one row for each experiment."""

    results: Sequence[Reproduction]

    def tables(self) -> list[Table]:
        headings = ("recipe", "claim", "paper", "ours", "seeds", "verdict", "cost")
        columns = [Column(heading, ".0f", left=True) for heading in headings]
        return [Table(columns, [result.line() for result in self.results])]


def read_reproductions(path: Path) -> list[Reproduction]:
    """Return the stored results of a JSON Lines file, in the order of the recipes."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "none"
        raise UserError(f"{path}: expected a file of stored reproductions, found {found}")
    results = [_from_json(line, path) for line in path.read_text().splitlines()]
    return sorted(results, key=lambda result: result.name)


def _from_json(line: str, path: Path) -> Reproduction:
    try:
        stored = json.loads(line)
        values = {
            name: {int(seed): float(value) for seed, value in of_name.items()}
            for name, of_name in stored["values"].items()
        }
        settings = stored["settings"]
        return Reproduction(stored["name"], stored["scale"], values, stored["seconds"], settings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: expected a reproduction in each line, found {error}") from None


def check_results_file(path: Path) -> None:
    """Raise if `store` cannot write to a file, hours before it does."""
    if path.exists():
        read_reproductions(path)
    else:
        make_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder if it is missing; raise one sentence if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: expected a folder to write to, {error.strerror}") from None


def store(result: Reproduction, path: Path) -> None:
    """Write a result to a JSON Lines file, in place of an earlier one of the same recipe."""
    others = read_reproductions(path) if path.exists() else []
    kept = [o for o in others if (o.name, o.scale) != (result.name, result.scale)]
    lines = [json.dumps(o.to_json()) for o in sorted([*kept, result], key=lambda o: o.name)]
    write_whole(path, "\n".join(lines) + "\n")
