"""The settings of an AutoSeM study, the runs that they ask for, and what the runs cost."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from taskmix.config import OF_MACHINE, RunConfig, changed
from taskmix.errors import UserError, unknown
from taskmix.families import FAMILIES
from taskmix.journal import Evaluation, read_latest
from taskmix.records import UnitRecord
from taskmix.studies.workers import Runner
from taskmix.training.folder import JOURNAL
from taskmix.training.prepare import without_epochs

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

Stage = Literal["selection", "search"]


@dataclass(frozen=True)
class AutosemSettings:
    """The settings of an AutoSeM study; defaults as in Guo, Pasunuru and Bansal (2019).

    Args:
        rounds: the number of rounds of stage 1.
        batches: mini-batches in a round.
        decay: the decay of stage 1's evidence, see `taskmix.Thompson`. None remembers about as many
            rounds as there are; the paper's code remembers three, too few for a selection.
        top: candidates that are selected whatever their utility.
        threshold: the utility above which more candidates are selected.
        credibility: the posterior probability with which their utility has to exceed the threshold.
        trials: mixing ratios that stage 2 tries.
        initial: trials before the Gaussian process is used: the primary alone, then random ratios.
        primary_range: the minimum and maximum of the primary's mini-batches in a cycle.
        auxiliary_range: the same for each auxiliary.
        prune: end trials early whose dev score is below the median of the others.
        warm_start: start stage 2 from the ratios that stage 1's rounds suggest, in place of the
            random initial ratios; stage 2 then has fewer trials by the difference.
        trial_budget: the fraction of the run's budget that a trial of stage 2 has. Ratios are
            compared at that budget; the final training has all of it.
        without: the stage to skip: `selection` selects all candidates, `search` tries a grid.
    """

    rounds: int = 200
    batches: int = 10
    decay: float | None = None
    top: int = 2
    threshold: float = 0.5
    credibility: float = 0.95
    trials: int = 20
    initial: int = 10
    primary_range: tuple[int, int] = (1, 20)
    auxiliary_range: tuple[int, int] = (0, 5)
    prune: bool = False
    warm_start: bool = False
    trial_budget: float = 1.0
    without: Stage | None = None

    def __post_init__(self) -> None:
        for name in ("rounds", "batches", "top", "trials", "initial"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if not 0 < self.trial_budget <= 1:
            raise UserError(
                f"trial_budget: expected a part of the budget, above 0 and at most 1, "
                f"found {self.trial_budget}"
            )
        if self.without not in (None, "selection", "search"):
            raise unknown("stage", str(self.without), ("selection", "search"), "without")
        if self.warm_start and self.without is not None:
            raise UserError(
                "warm_start: expected both stages, because stage 2 starts from stage 1's rounds, "
                f"found the study without {self.without}"
            )


@dataclass(frozen=True)
class StageCost:
    """The cost of one or several runs.

    Args:
        steps: of the optimiser.
        forward: examples passed forward, to train or to decide.
        backward: examples passed backward.
    """

    steps: int = 0
    forward: int = 0
    backward: int = 0

    @classmethod
    def of_run(cls, folder: Path) -> "StageCost":
        """Return the cost of the run in a folder up to its latest evaluation."""
        records = read_latest(folder / JOURNAL)
        steps = [record.step for record in records if isinstance(record, UnitRecord)]
        evaluations = [record for record in records if isinstance(record, Evaluation)]
        if not evaluations:
            return cls(steps[-1] if steps else 0)
        return cls(steps[-1] if steps else 0, evaluations[-1].forward, evaluations[-1].backward)

    @classmethod
    def of_trial(cls, trial: "FrozenTrial") -> "StageCost":
        """Return the cost that `store` wrote into a trial."""
        return cls(*(trial.user_attrs[field.name] for field in fields(cls)))

    def store(self, trial: "Trial") -> None:
        """Write the cost into a trial's user attributes."""
        for key, value in asdict(self).items():
            trial.set_user_attr(key, value)

    @classmethod
    def total(cls, costs: "Iterable[StageCost]") -> "StageCost":
        """Return the sum.

        >>> StageCost.total([StageCost(10, 160, 160), StageCost(5, 80, 80)])
        StageCost(steps=15, forward=240, backward=240)
        """
        rows = [(cost.steps, cost.forward, cost.backward) for cost in costs]
        return cls(*map(sum, zip(*rows, strict=True)))


@dataclass(frozen=True)
class Plan:
    """All that a worker needs to take part in a study.

    The configuration is the one that all runs share; its tasks are the primary and the candidates.
    """

    config: RunConfig
    primary: str
    candidates: tuple[str, ...]
    out: Path
    storage: str
    seeds: tuple[int, ...]
    settings: AutosemSettings
    runner: Runner

    def study_settings(self) -> dict[str, Any]:
        """Return the JSON-able settings that all workers of the study have to agree on."""
        shared = self.config.model_dump(mode="json", exclude=set(OF_MACHINE))
        settings = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self.settings).items()
        }
        if self.settings.without != "search":
            del settings["trials"]  # a finished search can have more; another grid is another study
        names = {"primary": self.primary, "candidates": list(self.candidates)}
        return {**shared, **settings, **names}

    def study_name(self, stage: str) -> str:
        return f"autosem/{self.config.name}/{stage}"

    def selection_config(self) -> RunConfig:
        """Return the configuration of stage 1: Thompson sampling over all tasks.

        It has all of its rounds: the run file's patience is for trainings that are scored.
        """
        settings = self.settings
        policy = {
            "name": "thompson",
            "primary": self.primary,
            "decay": 1 / (settings.rounds + 1) if settings.decay is None else settings.decay,
            "batches": settings.batches,
        }
        config = _with_steps(self.config, settings.rounds * settings.batches)
        evaluate = config.evaluate.model_copy(update={"patience": None})
        config = changed(config, {"evaluate": evaluate.model_dump()}, "autosem")
        return self._with_policy(config, policy, (self.primary, *self.candidates))

    def ratio_config(self, ratio: Mapping[str, int], seed: int) -> RunConfig:
        """Return the configuration of a run with a mixing ratio; tasks of ratio 0 are left out."""
        counts = {task: count for task, count in ratio.items() if count > 0}
        config = changed(self.config, {"seed": seed}, "autosem")
        return self._with_policy(config, {"name": "cycle", "ratio": counts}, counts)

    def trial_config(self, ratio: Mapping[str, int]) -> RunConfig:
        """Return the configuration of a trial of stage 2."""
        config = self.ratio_config(ratio, self.config.seed)
        return _with_steps(config, max(1, round(self.settings.trial_budget * config.budget.steps)))

    def _with_policy(
        self, config: RunConfig, policy: Mapping[str, Any], tasks: Iterable[str]
    ) -> RunConfig:
        entries = {entry.name: entry for entry in self.config.tasks}
        values = dict.fromkeys(FAMILIES) | {
            "policy": dict(policy),
            "tasks": [entries[task] for task in tasks],
        }
        return changed(config, values, "autosem")


@dataclass(frozen=True)
class PlannedCost:
    """The most that a study can cost.

    Args:
        stages: by stage, its greatest number of runs and the steps of each.
    """

    stages: Mapping[str, tuple[int, int]]

    @property
    def runs(self) -> int:
        """The greatest number of runs."""
        return sum(runs for runs, _ in self.stages.values())

    @property
    def steps(self) -> int:
        """The greatest number of steps, of all runs together."""
        return sum(runs * steps for runs, steps in self.stages.values())

    def sentence(self) -> str:
        """Return the runs and steps of each stage, and of all.

        >>> PlannedCost({"selection": (1, 2000), "search": (20, 500)}).sentence()
        'At most 21 runs with 12,000 steps: selection 1 x 2,000, search 20 x 500.'
        """
        stages = (f"{name} {runs} x {steps:,}" for name, (runs, steps) in self.stages.items())
        return f"At most {self.runs} runs with {self.steps:,} steps: {', '.join(stages)}."


def planned_cost(plan: Plan) -> PlannedCost:
    """Return the most that a study can cost, before it starts."""
    settings, steps = plan.settings, plan.config.length
    trial = plan.trial_config(dict.fromkeys((plan.primary, *plan.candidates), 1)).length
    stages = {"search": (settings.trials, trial), "final": (2 * len(plan.seeds), steps)}
    if settings.without != "selection":
        stages = {"selection": (1, plan.selection_config().length), **stages}
    return PlannedCost(stages)


def _with_steps(config: RunConfig, steps: int) -> RunConfig:
    budget = config.budget.model_copy(update={"steps": steps})
    return changed(config, {"budget": budget.model_dump()}, "autosem")


def checked_plan(plan: Plan) -> Plan:
    """Return the plan without the tasks that it does not need, or raise if it is wrong."""
    entries = {entry.name: entry for entry in plan.config.tasks}
    if plan.primary not in entries:
        raise unknown("task", plan.primary, entries, "primary")
    candidates = plan.candidates
    for name in candidates:
        if name not in entries:
            raise unknown("task", name, entries, "candidates")
    if not candidates or plan.primary in candidates or len(set(candidates)) < len(candidates):
        raise UserError(
            f"candidates: expected at least one task beside the primary {plan.primary}, each named "
            f"once, found {', '.join(candidates) or 'none'}"
        )
    if plan.config.seed in plan.seeds:
        raise UserError(
            f"seeds: expected others than {plan.config.seed}, the seed of the search, because the"
            f" ratio was chosen for its score with it, found {', '.join(map(str, plan.seeds))}"
        )
    tasks = [entries[name] for name in (plan.primary, *candidates)]
    values = {"tasks": tasks, "objective": _objective(plan)}
    checked = replace(plan, config=changed(without_epochs(plan.config), values, "autosem"))
    _check_splits(checked)
    return checked


def _objective(plan: Plan) -> dict[str, Any]:
    """Return the objective of the runs: the primary's score, unless the run file has its loss."""
    objective = plan.config.objective
    if objective is None:
        return {"tasks": [plan.primary]}
    if set(objective.tasks) != {plan.primary}:
        raise UserError(
            f"objective: expected the primary task {plan.primary} alone, because not every run has"
            f" the others, found {', '.join(objective.tasks)}"
        )
    return objective.model_dump()


def _check_splits(plan: Plan) -> None:
    """Raise if a task has no train or no dev data."""
    from taskmix.training.prepare import by_name, resolve

    for task in resolve(plan.config, by_name(plan.runner.tasks)):
        role = "primary" if task.name == plan.primary else "candidate"
        for split in ("train", "dev"):
            if split not in task.splits:
                existing = ", ".join(task.splits) or "none"
                raise UserError(f"{role} {task.name}: expected {split} data, found {existing}")
