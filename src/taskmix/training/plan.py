"""Plans: what a budget means for each task, before it is spent."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taskmix.config import RunConfig
from taskmix.selection import Selector
from taskmix.tables import Column, Row, Table
from taskmix.training.assembly import prepare_run
from taskmix.training.prepare import Prepared, token_batches
from taskmix.training.watching import Watchers


@dataclass(frozen=True)
class Planned:
    """What the budget means for one task."""

    task: str
    rows: int
    dev: int
    length: float  # mean tokens of a training item
    share: float  # of all examples, or tokens, that the budget trains on
    epochs: float
    cut: int  # training rows cut at the maximum length
    dev_cut: int
    scored: float = 0.0  # candidates that a selector scores a step


def plan(
    config: RunConfig, cache: Path | None = None, watchers: Watchers | None = None
) -> list[Planned]:
    """Return the expected mixture of a run; reads the data and trains nothing."""
    run = prepare_run(config, cache=cache, watchers=watchers)
    sizes = {entry.task.name: len(entry.train) for entry in run.prepared}
    driver = config.family.load_driver()
    examples = driver.expected_examples(run.decider, config, sizes)
    total = sum(examples.values())
    scored: dict[str, float] = {}
    if isinstance(run.decider, Selector):
        scored = {t: n / run.decider.every for t, n in run.decider.candidates().items()}
    return [
        Planned(
            entry.task.name,
            entry.train.rows,
            entry.dev.rows,
            float(np.mean(entry.train.lengths())),
            examples[entry.task.name] / total,
            examples[entry.task.name] / _epoch_size(entry, config),
            entry.train.cut,
            entry.dev.items.cut,
            scored.get(entry.task.name, 0.0),
        )
        for entry in run.prepared
    ]


def _epoch_size(entry: Prepared, config: RunConfig) -> float:
    """Return the examples of an epoch; batches of tokens count as full batches."""
    if config.budget.tokens is None:
        return len(entry.train)
    return token_batches(entry, config.budget.tokens) * config.budget.batch


_EQUIVALENT = {
    "steps": "",
    "examples": "as many examples as in ",
    "compute": "as many examples passed forward and backward as in ",
}


def plan_table(planned: list[Planned], config: RunConfig) -> Table:
    columns = [
        Column("task"),
        Column("rows", ","),
        Column("cut", ","),
        Column("dev rows", ","),
        Column("cut", ","),
        Column("tokens each", ".0f"),
        Column("share of examples", ".1%"),
        Column("epochs", _epochs),
    ]
    rows: list[Row] = [
        [p.task, p.rows, p.cut, p.dev, p.dev_cut, p.length, p.share, p.epochs] for p in planned
    ]
    scored = sum(p.scored for p in planned)
    notes = [_budget_sentence(config)]
    if scored:
        notes.append(
            f"A step scores {scored:,.0f} candidates, {scored / len(planned):,.0f} of each task, "
            f"and trains on {config.budget.batch:,} of them."
        )
    return Table(columns, rows, notes=tuple(notes))


def _epochs(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _budget_sentence(config: RunConfig) -> str:
    tokens = config.budget.tokens
    size = f"{config.budget.batch:,}" if tokens is None else f"about {tokens:,} tokens"
    budget = f"{config.length:,} {config.unit}, batches of {size}"
    sentence = f"Budget: {_EQUIVALENT[config.budget.count]}{budget}."
    if config.budget.count == "compute":
        sentence += " Candidates and signals are paid from it, and the examples above are the most."
    if config.family.key != "weighting":
        return sentence
    share = float(config.decider.get("fraction", 1.0))
    target = config.decider.get("target")
    return f"{sentence} A round trains on {share:.0%} of each task's rows; the target is {target}."
