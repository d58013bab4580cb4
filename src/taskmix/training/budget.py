"""How much of a run's budget is spent."""

# A budget counts steps or rounds, examples passed backward, or all examples passed
# (`budget.count`). The latter two are given as the cost of plain steps, which pass one batch
# forward and backward and nothing else. What a decider spends on candidates and signals is known
# only afterwards. So the learning rate, the evaluations and the end of a run depend on the cost so
# far, not on the number of the step.

from dataclasses import dataclass

from taskmix.config import RunConfig

DEFAULT_EVALUATIONS = 10


@dataclass
class Spent:
    """Examples that passed through the model so far, on all ranks together."""

    forward: int = 0
    backward: int = 0

    def add(self, examples: int, *, backward: bool = False) -> None:
        self.forward += examples
        self.backward += examples if backward else 0


def total(config: RunConfig) -> int:
    """Return the budget in the unit of `budget.count`."""
    return config.length * _plain_step(config)


def counted(config: RunConfig, step: int, spent: Spent) -> int:
    """Return the cost so far in the unit of `budget.count`."""
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
    """Return whether the rest of the budget is less than a plain step, or an average round."""
    used = counted(config, step, spent)
    if config.unit == config.family.unit:
        return used + _plain_step(config) > total(config)
    # used + used / step > total; the first round always runs, since its cost is not known before.
    return used * (step + 1) > total(config) * step


def part_spent(config: RunConfig, step: int, spent: Spent) -> float:
    return counted(config, step, spent) / total(config)


def is_due(config: RunConfig, every: int | None, step: int, before: int, now: int) -> bool:
    """Return whether an evaluation or a checkpoint is due after a step or round."""
    if every is not None:
        return step % every == 0
    tenths = [DEFAULT_EVALUATIONS * cost // total(config) for cost in (before, now)]
    return tenths[1] > tenths[0]


def place_of(config: RunConfig, step: int, spent: Spent) -> tuple[float, int]:
    """Return a step's place in the learning rate schedule and its length, both in plain steps."""
    if config.budget.count == "steps":
        return step, config.budget.steps
    return 1 + counted(config, step, spent) / _plain_step(config), config.length
