"""Plans: what a budget means for each task, before it is spent."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.config import RunConfig, build_policy, label, options_of
from taskmix.offpolicy.curves import LearnedMixture
from taskmix.policies import Policy
from taskmix.run_info import RunInfo
from taskmix.selection import Selector
from taskmix.studies.comparison import few_dev_rows
from taskmix.studies.improve import forecast
from taskmix.tables import Column, Row, Table, Tabled
from taskmix.training.assembly import prepare_run
from taskmix.training.cost import RunCost, can_estimate, estimate_cost, is_cheap
from taskmix.training.prepare import Prepared, Tasks, by_name, token_batches
from taskmix.training.run import configured
from taskmix.training.watching import Watcher, Watchers


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


@dataclass(frozen=True, repr=False)
class RunPlan(Tabled):
    """How a run would spend its budget.

    Args:
        tasks: what the budget means for each task.
        config: of the run.
        learns: whether the policy learns from outcomes, so that the shares are those of the start.
        cost: the estimated cost; None if it was not estimated.
        forecast: better shares and their scores, predicted from earlier runs; None without any.
    """

    tasks: tuple[Planned, ...]
    config: RunConfig
    learns: bool
    cost: RunCost | None = None
    forecast: LearnedMixture | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as values that JSON can represent: `taskmix plan --json`."""
        config = self.config
        return {
            "name": config.name,
            config.family.key: config.decider,
            "learns": self.learns,
            "budget": {
                config.unit: config.length,
                "batch": config.budget.batch,
                "tokens": config.budget.tokens,
                "count": config.budget.count,
            },
            "tasks": [asdict(task) for task in self.tasks],
            "cost": None if self.cost is None else asdict(self.cost),
            "forecast": None if self.forecast is None else asdict(self.forecast),
        }

    def tables(self) -> list[Table]:
        return [_table(self), *(self.forecast.tables() if self.forecast else [])]


def plan(
    config: RunConfig | Mapping[str, Any] | str | Path,
    *,
    tasks: Tasks = (),
    cost: bool | None = None,
    earlier: Sequence[Path | str] = (),
    cache: Path | None = None,
    watchers: Sequence[Watcher] = (),
) -> RunPlan:
    """Return how a run would spend its budget on each task, and what it would cost.

    Reads the data, writes nothing, and keeps nothing of the few steps that it times.

    Args:
        config: a `RunConfig`, the same as a mapping, or the path of a run file.
        tasks: tasks made in Python; the configuration refers to them by name.
        cost: whether to build the model and to estimate time and disk from a few steps. By default
            not for an encoder of the hub, which would be downloaded, and for `bilstm`, whose frozen
            encoder would pass over all data. A weighting, or a task with data made in Python, has
            no estimate.
        earlier: folders of finished runs of the same tasks, oldest first, from which scores and
            better shares are predicted.
        cache: the cache folder, for encoded splits above all.
        watchers: the objects that are notified of the progress.
    """
    python_tasks = by_name(tasks)
    config = configured(config, python_tasks)
    watching = Watchers(watchers)
    mixture = forecast(config, config.task_names, list(map(Path, earlier))) if earlier else None
    run = prepare_run(config, python_tasks, cache=cache, watchers=watching)
    sizes = {entry.task.name: len(entry.train) for entry in run.prepared}
    driver = config.family.load_driver()
    examples = driver.expected_examples(run.decider, config, sizes)
    total = sum(examples.values())
    scored: dict[str, float] = {}
    if isinstance(run.decider, Selector):
        scored = {t: n / run.decider.every for t, n in run.decider.candidates().items()}
    planned = tuple(
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
    )
    decider = getattr(run.decider, "policy", run.decider)  # which `stratified` draws from
    learns = isinstance(decider, Policy) and type(decider).tell is not Policy.tell
    if cost is None:
        cost = is_cheap(config)
    run_cost = estimate_cost(run, watching) if cost and can_estimate(run) else None
    return RunPlan(planned, config, learns, run_cost, mixture)


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


def _table(plan: RunPlan) -> Table:
    planned, config = plan.tasks, plan.config
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
    notes = [
        f"{config.family.key.capitalize()}: {label(config.decider)}. {_budget_sentence(config)}"
    ]
    if plan.learns:
        notes.append("The policy learns during the run; these are the shares that it starts with.")
    if scored:
        notes.append(
            f"A step scores {scored:,.0f} candidates, {scored / len(planned):,.0f} of each task, "
            f"and trains on {config.budget.batch:,} of them."
        )
    notes += _warnings(planned, config)
    if plan.cost is not None:
        notes.append(plan.cost.sentence)
    return Table(columns, rows, notes=tuple(notes))


def _warnings(planned: Sequence[Planned], config: RunConfig) -> list[str]:
    """Return sentences on repeated examples and on small dev sets."""
    sentences = []
    if lower := _lower_shares(planned, config):
        sentences.append(f"aimed draws repeated examples less often: {', '.join(lower)}.")
    return [*sentences, *few_dev_rows({p.task: p.dev for p in planned})]


def _lower_shares(planned: Sequence[Planned], config: RunConfig) -> list[str]:
    """Return in words the shares that are lower because examples are repeated."""
    if config.decider["name"] != "aimed":
        return []
    targets = () if config.objective is None else config.objective.tasks
    info = RunInfo({p.task: p.rows for p in planned}, config.length, config.budget.batch, targets)
    plain = build_policy({"name": "aimed", **options_of(config.decider), "repeats": None}, info)
    return [
        f"{p.task} {p.share:.0%} instead of {share:.0%} ({p.epochs:.1f} epochs)"
        for p, share in zip(planned, plain.probabilities().tolist(), strict=True)
        if round(p.share, 2) < round(share, 2)
    ]


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
