"""How much of a run's budget is spent.

A budget counts steps or rounds, examples passed backward, or all examples passed (`budget.count`).
In the latter two it is what plain steps cost: a step that passes one batch forward and backward and
nothing else. How much a decider spends beside that, on candidates and signals, shows only as it
goes: so a run's length, its learning rate and its evaluations go by what was spent, not by the
number of the step.
"""

from taskmix.config import RunConfig
from taskmix.training.engine import Spent

PARTS = 10
"""Evaluations in a run whose configuration does not say how often."""


def whole(config: RunConfig) -> int:
    """Return the whole budget, in what it counts."""
    return config.length * _plain_step(config)


def counted(config: RunConfig, step: int, spent: Spent) -> int:
    """Return what was spent of the budget, in what it counts.

    Args:
        config: of the run.
        step: units that were done.
        spent: what they cost.
    """
    match config.budget.count:
        case "examples":
            return spent.backward
        case "compute":
            return spent.forward + spent.backward
    return step


def _plain_step(config: RunConfig) -> int:
    match config.budget.count:
        case "examples":
            return config.budget.batch
        case "compute":
            return 2 * config.budget.batch
    return 1


def is_spent(config: RunConfig, step: int, spent: Spent) -> bool:
    """Return whether the run is over: not even a plain step, or an average round, fits any more.

    So a run exceeds its budget by less than what its last step costs beside a plain one; a first
    round is always done, because nobody knows before what it costs.
    """
    used = counted(config, step, spent)
    if config.unit == config.family.unit:
        return used + _plain_step(config) > whole(config)
    return used * (step + 1) > whole(config) * step  # used + used / step > whole


def part_spent(config: RunConfig, step: int, spent: Spent) -> float:
    """Return the part of the budget that is spent."""
    return counted(config, step, spent) / whole(config)


def is_due(config: RunConfig, every: int | None, step: int, before: int, now: int) -> bool:
    """Return whether something is due behind a unit.

    Args:
        config: of the run.
        every: units between two times; None for each tenth of the budget.
        step: the unit.
        before: what was spent before it, in what the budget counts.
        now: what is spent behind it.
    """
    if every is not None:
        return step % every == 0
    return PARTS * now // whole(config) > PARTS * before // whole(config)


def place_of(config: RunConfig, step: int, spent: Spent) -> tuple[float, int]:
    """Return a step's place in the schedule of the learning rate, and the schedule's length.

    Both count plain steps, so that a run that makes no others has the schedule of as many steps.

    Args:
        config: of the run.
        step: the step that comes, from 1.
        spent: what those before it have cost.
    """
    if config.budget.count == "steps":
        return step, config.budget.steps
    return 1 + counted(config, step, spent) / _plain_step(config), config.length
