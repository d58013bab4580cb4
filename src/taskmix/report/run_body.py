"""What the report of one run shows."""

from collections.abc import Mapping
from typing import Any

from taskmix.config import Objective
from taskmix.journal import SelectionStep
from taskmix.report import figures
from taskmix.report.document import Plot, events, folded, table, tiles, verbatim, with_legend
from taskmix.report.figures.deciders import DECIDERS
from taskmix.report.figures.run import CONVERGENCE, DEV_SCORES, TRAINING_LOSS
from taskmix.report.history import Exposure, History, exposures
from taskmix.report.promise import promise_table
from taskmix.report.rollouts import CURVES, has_rewards, rollout_table
from taskmix.report.run_data import RunData
from taskmix.report.style import looks
from taskmix.report.timeline import measurements, training_losses
from taskmix.report.why import why
from taskmix.studies.comparison import below_baseline, unit_of
from taskmix.studies.paired import SCORES
from taskmix.tables import UNKNOWN, Column, Table, TableCell, Value, duration, hundredths
from taskmix.tasks.metrics import PERPLEXITY, shown
from taskmix.training.folder import Finished, Scores

MAX_SHARES = 4
"""Tasks whose shares are in a sentence; those of more are only in the table."""


def run_body(run: RunData) -> list[str | Plot]:
    """Return the scores first, then the figures, then the configuration."""
    reasons, plots, promised = why(run.history), _plots(run), promise_table(run)
    return [
        tiles(_facts(run)),
        table(run_table(run)),
        *([table(promised)] if promised else []),
        *with_legend(
            looks(run.history.tasks),
            *plots[:1],  # of the shares
            *([folded("Why the shares changed", events(reasons), is_open=True)] if reasons else []),
            *plots[1:],
        ),
        *([folded("Configuration", verbatim(run.config))] if run.config else []),
    ]


def run_verdict(run: RunData) -> str:
    """Return how far a run is, and what it reached, in one or two sentences."""
    history, result = run.history, run.result
    sentences = []
    if not run.finished:
        budget = history.opening.budget.get(history.family.unit)
        of = f" of {budget:,}" if budget and history.opening.count == "steps" else ""
        state = "" if result else ", and it has not been scored yet"
        sentences.append(
            f"This run is not finished: {history.end:,}{of} {history.family.unit} are done{state}."
        )
    elif result is None:
        sentences.append(
            f"{run.policy} made {history.end:,} draw{'s' * (history.end != 1)}"
            f"{_mixture(history)}; the journal has no scores."
        )
    if result:
        so_far = "" if run.finished else " so far"
        sentences.append(f"{run.policy} reached {_reached(run, result)}{so_far}.")
        sentences += _over_baseline(result)
        target = history.opening.decider.get("target") if run.objective is None else None
        reason = f", for its score of the target {target}" if target in result.tasks else ""
        sentences.append(f"The model of {history.unit} {result.step:,} is kept{reason}.")
    return " ".join(sentences)


def _mixture(history: History) -> str:
    """Return the shares of the draws, unless there are many tasks."""
    given = exposures(history)
    if not 1 < len(given) <= MAX_SHARES:
        return ""
    return f" ({', '.join(f'{task} {exposure.share:.0%}' for task, exposure in given.items())})"


def _reached(run: RunData, result: Finished) -> str:
    objective = run.objective
    if objective is None or result.objective is None:
        tasks, value, measure, targets = [*result.tasks], hundredths(result.score), "score", ""
    else:
        tasks, value = [*objective.tasks], unit_of(objective).level(result.objective)
        measure, targets = objective.measure, "target "
    if len(tasks) == 1:
        return f"a dev {measure} of {value} on {tasks[0]}"
    return f"a mean dev {measure} of {value} over {len(tasks)} {targets}tasks"


def _over_baseline(result: Finished) -> list[str]:
    if all(of.baseline is None for of in result.tasks.values()):
        return []
    below = below_baseline({task: (of.score, of.baseline) for task, of in result.tasks.items()})
    return below or ["Every task is above the baseline of a constant prediction."]


def _facts(run: RunData) -> dict[str, str]:
    history, result = run.history, run.result
    facts = {}
    if result:
        if run.objective is not None and result.objective is not None:
            facts[run.objective.words] = unit_of(run.objective).level(result.objective)
        if unit_of(run.objective) is SCORES:
            facts["mean score"] = hundredths(result.score)
    target = str(history.opening.decider.get("target"))
    if result and target in result.tasks:
        facts[f"score of the target, {target}"] = hundredths(result.tasks[target].score)
    facts |= {history.family.key: run.policy, "seed": str(history.opening.seed)}
    facts["budget"] = budget_words(history.opening.budget, history.family.unit)
    if (count := history.opening.count) != "steps":
        facts["budget"] = f"the {count} of {budget_words(history.opening.budget, 'steps')}"
    if result and result.forward:
        facts["examples forward / backward"] = f"{result.forward:,} / {result.backward:,}"
    if history.units and isinstance(last := history.units[-1], SelectionStep):
        facts["data used"] = f"{last.used:.1%}"
    if history.seconds:
        facts["time"] = duration(history.seconds)
    return {name: fact for name, fact in facts.items() if fact != UNKNOWN}


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


def run_table(run: RunData) -> Table:
    """Return the scores of a run by task, with what each task got of the budget."""
    history, result = run.history, run.result
    given = exposures(history)
    if result is None and has_rewards(history):
        return rollout_table(history, given)
    if result is None:
        return scores_table(dict.fromkeys(history.tasks), given)
    scores = {task: result.tasks[task] for task in history.tasks}
    return scores_table(scores, given, result.score, run.objective, result.objective)


def scores_table(
    scores: Mapping[str, Scores | None],
    given: Mapping[str, Exposure] | None = None,
    mean: float | None = None,
    objective: Objective | None = None,
    value: float | None = None,
) -> Table:
    """Return scores by task.

    Args:
        scores: by task; None before the first evaluation.
        given: by task, its part of the budget, where that is known.
        mean: over the tasks.
        objective: the objective of the run, if it names one.
        value: of the objective.
    """
    columns, rows = [Column("task")], {task: _scored(task, each) for task, each in scores.items()}
    if any(scores.values()):
        columns += [
            Column("metric", left=True),
            Column("loss", ".3f"),
            Column("score", hundredths),
        ]
    else:
        rows = {task: [task] for task in scores}
    totals: list[list[Value]] = []
    if mean is not None:
        totals.append(["mean", "", "", mean])
    if objective is not None and value is not None:
        cell = TableCell(unit_of(objective).level(value), value)
        by_loss = objective.measure == "loss"
        totals.append([objective.words, "", *((cell, "") if by_loss else ("", cell))])
    baselines = {task: of_task.baseline if of_task else None for task, of_task in scores.items()}
    if any(baseline is not None for baseline in baselines.values()):
        _add(columns, rows, Column("baseline", hundredths), baselines)
    if given is not None:
        _add(columns, rows, Column("share", ".1%"), {t: e.share for t, e in given.items()})
        if any(exposure.examples is not None for exposure in given.values()):
            examples = {task: exposure.examples for task, exposure in given.items()}
            _add(columns, rows, Column("examples seen", ","), examples)
            epochs = {task: exposure.epochs for task, exposure in given.items()}
            _add(columns, rows, Column("epochs", ".2f"), epochs)
    rest = [""] * (len(columns) - 4)
    return Table(columns, [*rows.values(), *([*row, *rest] for row in totals)], totals=len(totals))


def _add(
    columns: list[Column],
    rows: Mapping[str, list[Value]],
    column: Column,
    values: Mapping[str, float | None],
) -> None:
    columns.append(column)
    for task, row in rows.items():
        row.append(values.get(task))


def _scored(task: str, scores: Scores | None) -> list[Value]:
    if scores is None:
        return [task, None, None, None]
    names = list(scores.metrics)
    if len(names) > 1 or PERPLEXITY.name in names:
        names = [shown(name, value) for name, value in scores.metrics.items()]
    return [task, ", ".join(names) or None, scores.loss, scores.score]


def _plots(run: RunData) -> list[Plot]:
    """Return the figures that the journal has records for."""
    history = run.history
    made = []
    if history.units:
        caption, draw = DECIDERS[history.family.key]
        made.append(Plot(caption, draw(history)))
    if history.evaluations and unit_of(run.objective) is SCORES:
        kept = run.result.step if run.result else None
        made.append(Plot(DEV_SCORES, figures.dev_scores(history, kept)))
    if history.evaluations:
        made.append(Plot(CONVERGENCE, figures.convergence(history)))
    if training_losses(history):
        made.append(Plot(TRAINING_LOSS, figures.training_loss(history)))
    made += [
        Plot(caption, figures.rollouts(history, name))
        for name, caption in CURVES.items()
        if measurements(history, name)
    ]
    return made
