"""What the report of one run shows."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from taskmix.journal import SelectionStep
from taskmix.report import captions, figures
from taskmix.report.document import Plot, folded, notice, plots, table, tiles, verbatim
from taskmix.report.exposure import Exposure, exposures
from taskmix.report.folder import Folder
from taskmix.report.numbers import UNKNOWN, duration, hundredths
from taskmix.report.standing import Standing
from taskmix.report.timeline import training_losses
from taskmix.tasks.metrics import PERPLEXITY, shown


def run_body(run: Folder) -> list[str]:
    """Return the scores first, then the figures, then the configuration."""
    return [
        *_how_far(run),
        tiles(_facts(run)),
        _tasks_table(run),
        *plots(_plots(run)),
        *([folded("Configuration", verbatim(run.config))] if run.config else []),
    ]


def _how_far(run: Folder) -> list[str]:
    if run.finished:
        return []
    history = run.history
    done, budget = history.end, history.opening.budget.get(history.family.unit)
    of = f" of {budget:,}" if budget and history.opening.count == "steps" else ""
    state = "the scores are the best so far" if run.standing else "it has not been scored yet"
    return [
        notice(
            f"This run is not finished: {done:,}{of} {history.family.unit} are done, and {state}."
        )
    ]


def _facts(run: Folder) -> dict[str, str]:
    """Return what a person wants to know first."""
    history, stands = run.history, run.standing
    facts = {}
    if stands:
        facts["score (mean over tasks)"] = hundredths(stands.score)
        facts[f"kept from {history.unit}"] = f"{stands.step:,}"
    target = str(history.opening.decider.get("target"))
    if stands and target in stands.scores:
        facts[f"score of the target, {target}"] = hundredths(stands.scores[target])
    facts |= {history.family.key: run.policy, "seed": str(history.opening.seed)}
    facts["budget"] = budget_words(history.opening.budget, history.family.unit)
    if (count := history.opening.count) != "steps":
        facts["budget"] = f"the {count} of {budget_words(history.opening.budget, 'steps')}"
    if stands:
        facts["examples forward"] = f"{stands.forward:,}"
        facts["examples backward"] = f"{stands.backward:,}"
    if history.units and isinstance(last := history.units[-1], SelectionStep):
        facts["data used"] = f"{last.used:.1%}"
    if history.seconds:
        facts["time"] = duration(history.seconds)
    return facts


def budget_words(budget: Mapping[str, Any], unit: str) -> str:
    """Return the budget in words.

    >>> budget_words({"steps": 2000, "batch": 16, "accumulate": 1}, "steps")
    '2,000 steps, batches of 16'
    """
    if not {unit, "batch"} <= set(budget):
        return UNKNOWN
    if "tokens" in budget:
        return f"{budget[unit]:,} {unit}, batches of about {budget['tokens']:,} tokens"
    return f"{budget[unit]:,} {unit}, batches of {budget['batch']:,}"


def _tasks_table(run: Folder) -> str:
    stands, given = run.standing, exposures(run.history)
    baselines = stands.baselines if stands else {}
    head = ["task", "metric", "score", *(["without looking"] if baselines else [])]
    counted = any(each.examples is not None for each in given.values())
    head += ["share", *(["examples seen", "epochs"] if counted else [])]
    rows = []
    for task in run.history.tasks:
        baseline = [hundredths(baselines.get(task))] if baselines else []
        got = _given(given.get(task))[: 3 if counted else 1]
        rows.append([task, *_scored(stands, task), *baseline, *got])
    return table(head, rows)


def _scored(stands: Standing | None, task: str) -> list[str]:
    if stands is None:
        return [UNKNOWN, UNKNOWN]
    metrics = stands.metrics.get(task, {})
    names = list(metrics)
    if len(names) > 1 or PERPLEXITY.name in names:
        names = [shown(name, value) for name, value in metrics.items()]
    return [", ".join(names) or UNKNOWN, hundredths(stands.scores[task])]


def _given(exposure: Exposure | None) -> list[str]:
    if exposure is None:
        return [UNKNOWN] * 3
    examples = UNKNOWN if exposure.examples is None else f"{exposure.examples:,}"
    epochs = UNKNOWN if exposure.epochs is None else f"{exposure.epochs:.2f}"
    return [f"{exposure.share:.1%}", examples, epochs]


def _plots(run: Folder) -> list[Plot]:
    """Return the figures that the journal has records for."""
    history = run.history
    kept = run.standing.step if run.standing else None
    made = []
    if history.evaluations:
        made.append(Plot(captions.DEV_SCORES, figures.dev_scores(history, kept)))
    if history.units:
        own = import_module(history.family.figure)
        made.append(Plot(own.CAPTION, own.draw(history)))
    if history.evaluations:
        made.append(Plot(captions.CONVERGENCE, figures.convergence(history)))
    if training_losses(history):
        made.append(Plot(captions.TRAINING_LOSS, figures.training_loss(history)))
    return made
