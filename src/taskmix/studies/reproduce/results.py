"""The results of recipes beside the papers', and their storage."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.studies.paired import SCORES, Difference, differences, interval_words, p_words
from taskmix.studies.reproduce.recipe import Recipe, Rule, ScaleName, Values, read_recipe
from taskmix.tables import Column, Row, Table, Tabled


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
        named = {name for rule in recipe.rules for name in (rule.contestant, rule.against)}
        shown = {n: sum(v.values()) / len(v) for n, v in self.values.items() if n in named}
        ours = ", ".join(f"{name} {100 * value:.1f}" for name, value in shown.items())
        reported = {name: value for name, value in recipe.reported.items() if name in named}
        paper = ", ".join(f"{name} {value:.1f}" for name, value in reported.items())
        seeds = max((len(self.values[name]) for name in shown), default=0)
        minutes = f"{self.seconds / 60:,.1f} min"
        return [self.name, recipe.claim, paper or None, ours, seeds, self.verdict(), minutes]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
        settings = stored["settings"]
        return Reproduction(stored["name"], stored["scale"], values, stored["seconds"], settings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: expected a reproduction in each line, found {error}") from None


def store(result: Reproduction, path: Path) -> None:
    """Write a result to a JSON Lines file, in place of an earlier one of the same recipe."""
    others = read_reproductions(path) if path.exists() else []
    kept = [o for o in others if (o.name, o.scale) != (result.name, result.scale)]
    lines = [json.dumps(o.to_json()) for o in sorted([*kept, result], key=lambda o: o.name)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "\n".join(lines) + "\n")
