"""The rewards of completions in reports on reinforcement learning."""

from collections.abc import Mapping, Sequence
from statistics import mean

from taskmix.journal import Step
from taskmix.report.document import Caption
from taskmix.report.history import Exposure, History
from taskmix.report.run_data import RunData
from taskmix.tables import Column, Row, Table

_LATE = "in the last tenth of the draws"
_SMOOTHED = "smoothed over a twentieth of its draws"
#: The measurements that are drawn over the steps.
CURVES: Mapping[str, Caption] = {
    "reward": Caption(
        "Reward",
        f"The mean reward of each environment's completions, {_SMOOTHED}; rewards of different "
        "environments are not on one scale.",
    ),
    "mute": Caption(
        "Mute",
        "The share of prompts whose completions all have the same reward, so that they have no "
        f"gradient, {_SMOOTHED}. An environment near 1 is solved or too hard.",
    ),
    "advantage": Caption(
        "Advantage",
        f"The mean absolute advantage of each environment's completions, {_SMOOTHED}.",
    ),
}


def has_rewards(history: History) -> bool:
    """Return whether the run is one of reinforcement learning."""
    return any(isinstance(unit, Step) and unit.reward is not None for unit in history.units)


def late_mean(history: History, task: str, name: str) -> float | None:
    """Return the mean of a measurement over a task's draws in the last tenth of all draws."""
    steps = [unit for unit in history.units if isinstance(unit, Step)]
    late = [getattr(step, name) for step in steps[-(len(steps) // 10 or 1) :] if step.task == task]
    measured = [value for value in late if value is not None]
    return mean(measured) if measured else None


def rollout_table(history: History, given: Mapping[str, Exposure]) -> Table:
    """Return reward and mute of each environment at the end, and its part of the draws."""
    rows: list[Row] = [
        [
            task,
            late_mean(history, task, "reward"),
            late_mean(history, task, "mute"),
            given[task].share,
            given[task].examples,
            given[task].epochs,
        ]
        for task in history.tasks
    ]
    columns = [
        Column("environment"),
        Column("reward", ".3f"),
        Column("mute", ".1%"),
        Column("share", ".1%"),
        Column("completions", ","),
        Column("epochs", ".2f"),
    ]
    note = f"Reward and mute are means {_LATE}; mute is the share of prompts without a gradient."
    return Table(columns, rows, notes=(note,))


def reward_table(runs: Mapping[str, Sequence[RunData]]) -> Table:
    """Return the rewards of each environment at the end, the mean over each contestant's seeds."""
    tasks = next(iter(runs.values()))[0].history.tasks
    by_name = {
        name: [_mean([late_mean(run.history, task, "reward") for run in seeds]) for task in tasks]
        for name, seeds in runs.items()
    }
    rows: list[Row] = [
        [task, *(rewards[place] for rewards in by_name.values())]
        for place, task in enumerate(tasks)
    ]
    rows.append(["mean over environments", *map(_mean, by_name.values())])
    columns = [
        Column("environment"),
        *(Column(f"{name} (seeds: {len(seeds)})", ".3f") for name, seeds in runs.items()),
    ]
    note = (
        f"The mean reward of each environment's training prompts {_LATE}. It is not tested; "
        "decide between policies by the rewards of held-out prompts."
    )
    return Table(columns, rows, "Training rewards", totals=1, notes=(note,))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None
