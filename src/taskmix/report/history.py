"""A run's journal, sorted by kind."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from taskmix.errors import UserError, unknown
from taskmix.families import FAMILIES, Family
from taskmix.journal import Diagnostics, Evaluation, Extended, Opening, Shares, Step, read_latest
from taskmix.records import UnitRecord


@dataclass(frozen=True)
class History:
    """A run's journal, its records sorted by kind and in order.

    Args:
        opening: the run's description, with the budget that it has now.
        shares: the distributions of a policy's draws.
        units: the steps or rounds.
        diagnostics: the state of the decider's estimates.
        evaluations: on dev splits.
    """

    opening: Opening
    shares: Sequence[Shares] = ()
    units: Sequence[UnitRecord] = ()
    diagnostics: Sequence[Diagnostics] = ()
    evaluations: Sequence[Evaluation] = ()

    @property
    def tasks(self) -> list[str]:
        return self.opening.tasks

    @property
    def family(self) -> Family:
        return FAMILIES[self.opening.family]

    @property
    def unit(self) -> str:
        """The unit of the budget, in the singular: step or round."""
        return self.family.unit.removesuffix("s")

    @property
    def end(self) -> int:
        """The last step or round that left a record."""
        kinds: tuple[Sequence[UnitRecord | Evaluation], ...] = (self.units, self.evaluations)
        return max((kind[-1].step for kind in kinds if kind), default=0)

    @property
    def length(self) -> int:
        """The budget in steps or rounds; the part spent where the journal does not tell it."""
        return int(self.opening.budget.get(self.family.unit) or max(1, self.end))

    def part(self, evaluation: Evaluation) -> float:
        """Return the part of the budget that was spent at an evaluation."""
        budget = self.opening.budget
        examples = budget.get("steps", 0) * budget.get("batch", 0) or 1
        match self.opening.count:
            case "examples":
                return evaluation.backward / examples
            case "compute":
                return (evaluation.forward + evaluation.backward) / (2 * examples)
        return evaluation.step / self.length

    @property
    def seconds(self) -> float:
        """The time of all steps and evaluations."""
        records = [*self.units, *self.evaluations]
        return sum(getattr(record, "seconds", None) or 0.0 for record in records)


def read_history(path: Path) -> History:
    """Return the history in a journal file since its tasks last changed."""
    records = read_latest(path)
    if not records or not isinstance(records[0], Opening):
        raise UserError(f"{path}: expected a journal that opens with its run, found no such line")
    budgets = [record.budget for record in records if isinstance(record, Extended)]
    opening = replace(records[0], budget=budgets[-1]) if budgets else records[0]
    if opening.family not in FAMILIES:
        raise unknown("family", opening.family, FAMILIES, str(path))
    evaluations = [r for r in records if isinstance(r, Evaluation) and r.split == "dev"]
    for record in evaluations:
        for by_task in (record.scores, record.losses):
            if missing := [task for task in opening.tasks if task not in by_task]:
                raise UserError(
                    f"{path}: expected each evaluation to have all tasks, found no "
                    f"{missing[0]} at {record.step}"
                )
    return History(
        opening,
        shares=[record for record in records if isinstance(record, Shares)],
        units=[record for record in records if isinstance(record, UnitRecord)],
        diagnostics=[record for record in records if isinstance(record, Diagnostics)],
        evaluations=evaluations,
    )


@dataclass(frozen=True)
class Exposure:
    """A task's part of the budget; None where the journal does not tell."""

    share: float
    examples: int | None
    epochs: float | None


def exposures(history: History) -> dict[str, Exposure]:
    """Return each task's part of the budget; empty before the first unit."""
    if not history.units:
        return {}
    prompts = history.opening.budget.get("batch", 1)
    examples: Counter[str] = Counter()
    seen: Counter[str] = Counter()  # a prompt has several completions, which are its examples
    shares: defaultdict[str, float] = defaultdict(float)
    for unit in history.units:
        drawn = unit.examples_of()
        examples.update(drawn)
        is_rollout = isinstance(unit, Step) and unit.reward is not None
        seen.update(dict.fromkeys(drawn, prompts) if is_rollout else drawn)
        for task, share in unit.shares().items():
            shares[task] += share / len(history.units)
    known = examples.total() > 0
    by_task = {}
    for task in history.tasks:
        size = history.opening.sizes.get(task)
        epochs = seen[task] / size if known and size else None
        by_task[task] = Exposure(shares[task], examples[task] if known else None, epochs)
    return by_task
