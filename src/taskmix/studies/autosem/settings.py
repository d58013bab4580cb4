"""What an AutoSeM study is asked to do, and what each of its workers needs for it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from taskmix.config import OF_MACHINE, RunConfig, changed
from taskmix.errors import UserError, unknown
from taskmix.families import FAMILIES

if TYPE_CHECKING:
    from torch import nn

    from taskmix.tasks.task import Task
    from taskmix.training.folder import Finished
    from taskmix.training.watching import Watcher

Stage = Literal["selection", "search"]


@dataclass(frozen=True)
class AutosemSettings:
    """How a study is done; the defaults are those of Guo, Pasunuru and Bansal (2019).

    Args:
        rounds: of stage 1.
        batches: mini-batches in a round.
        decay: how fast stage 1 forgets, see `taskmix.Thompson`. None remembers about as many rounds
            as there are; the paper's code remembers three, which leaves little to select by.
        top: candidates that are selected in any case.
        threshold: the utility above which further ones are selected.
        credibility: how probable it has to be that theirs is above it.
        trials: mixing ratios that stage 2 tries.
        initial: of them, those tried before the Gaussian process is used.
        primary_range: the least and the most mini-batches of the primary in a turn.
        auxiliary_range: the same for each auxiliary.
        prune: end trials early whose dev score is below the median of the others.
        warm_start: begin stage 2 at the ratios that stage 1's rounds suggest, in place of the
            random initial ones; as many trials as that saves are not made.
        trial_budget: the part of the run's budget that a trial of stage 2 has. Ratios are compared
            at that budget, and the final training has all of it.
        without: the stage to leave out: all candidates are selected, or the ratios are a grid.
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
                "warm_start: expected both stages, because stage 2 starts from what stage 1 found, "
                f"found the study without {self.without}"
            )


@dataclass(frozen=True)
class Plan:
    """Everything that a worker needs to take part in a study.

    Args:
        config: what all runs have in common; its tasks are the primary and the candidates.
        primary: the task that the others are to help.
        candidates: the others.
        out: the folder of the runs.
        storage: the URL of the storage.
        seeds: of the final trainings.
        settings: how the study is done.
        model: makes the module of one's own that each run starts from.
        tasks: tasks made in Python.
        cache: the folder for what is computed once.
        watch: makes the watcher of each run from its configuration and a title.
    """

    config: RunConfig
    primary: str
    candidates: tuple[str, ...]
    out: Path
    storage: str
    seeds: tuple[int, ...]
    settings: AutosemSettings = AutosemSettings()
    model: "Callable[[], nn.Module] | None" = None
    tasks: "Sequence[Task] | Mapping[str, Task]" = ()
    cache: Path | None = None
    watch: "Callable[[RunConfig, str], Watcher] | None" = None

    def purpose(self) -> dict[str, Any]:
        """Return what all workers of the study have to agree on."""
        asked = self.config.model_dump(mode="json", exclude=set(OF_MACHINE))
        own = {key: _jsonable(value) for key, value in asdict(self.settings).items()}
        return {**asked, **own, "primary": self.primary, "candidates": list(self.candidates)}

    def study(self, stage: str) -> str:
        """Return the name of a stage's study."""
        return f"autosem/{self.config.name}/{stage}"

    def selecting(self) -> RunConfig:
        """Return the run of stage 1: Thompson sampling over all tasks."""
        settings = self.settings
        policy = {
            "name": "thompson",
            "primary": self.primary,
            "decay": 1 / (settings.rounds + 1) if settings.decay is None else settings.decay,
            "batches": settings.batches,
        }
        steps = settings.rounds * settings.batches
        budget = self.config.budget.model_copy(update={"steps": steps})
        asked = changed(self.config, {"budget": budget.model_dump()}, "autosem")
        return self._decided(asked, policy, (self.primary, *self.candidates))

    def mixing(self, ratio: Mapping[str, int], seed: int) -> RunConfig:
        """Return the run with a mixing ratio; tasks that have no share in it are left out.

        Args:
            ratio: by task, its mini-batches in a turn.
            seed: of the run.
        """
        shares = {task: count for task, count in ratio.items() if count > 0}
        asked = changed(self.config, {"seed": seed}, "autosem")
        return self._decided(asked, {"name": "cycle", "ratio": shares}, shares)

    def trying(self, ratio: Mapping[str, int]) -> RunConfig:
        """Return the run of a trial of stage 2 with a mixing ratio.

        Args:
            ratio: by task, its mini-batches in a turn.
        """
        config = self.mixing(ratio, self.config.seed)
        steps = max(1, round(self.settings.trial_budget * config.budget.steps))
        budget = config.budget.model_copy(update={"steps": steps})
        return changed(config, {"budget": budget.model_dump()}, "autosem")

    def _decided(
        self, config: RunConfig, policy: Mapping[str, Any], tasks: Iterable[str]
    ) -> RunConfig:
        by_name = {name_of(entry): entry for entry in self.config.tasks}
        values = dict.fromkeys(FAMILIES) | {
            "policy": dict(policy),
            "tasks": [by_name[task] for task in tasks],
        }
        return changed(config, values, "autosem")

    def run(
        self, config: RunConfig, folder: Path, title: str, watchers: "Sequence[Watcher]" = ()
    ) -> "Finished":
        """Train, or go on with what is in the folder.

        Args:
            config: of the run.
            folder: of the run.
            title: what a person is told.
            watchers: are told of all that happens, beside the study's own.
        """
        from taskmix.training.run import run

        view = [self.watch(config, title)] if self.watch is not None else []
        return run(
            config,
            folder,
            model=self.model() if self.model is not None else None,
            tasks=self.tasks,
            resume=True,
            cache=self.cache,
            watchers=[*view, *watchers],
        )


def name_of(entry: str | Mapping[str, Any]) -> str:
    """Return the name of a run file's task."""
    return entry if isinstance(entry, str) else str(entry.get("name"))


def made_plan(plan: Plan) -> Plan:
    """Return a plan whose tasks are the ones it needs, or raise one sentence about what is wrong.

    Args:
        plan: as it was asked for; its configuration may have other tasks too.
    """
    names = [name_of(entry) for entry in plan.config.tasks]
    if plan.primary not in names:
        raise unknown("task", plan.primary, names, "primary")
    candidates = tuple(plan.candidates)
    for name in candidates:
        if name not in names:
            raise unknown("task", name, names, "candidates")
    if not candidates or plan.primary in candidates or len(set(candidates)) < len(candidates):
        raise UserError(
            f"candidates: expected at least one task beside the primary {plan.primary}, each named "
            f"once, found {', '.join(candidates) or 'none'}"
        )
    wanted = (plan.primary, *candidates)
    entries = {name_of(entry): entry for entry in plan.config.tasks}
    values = {"tasks": [entries[name] for name in wanted], "objective": _objective(plan)}
    made = replace(plan, config=changed(plan.config, values, "autosem"), candidates=candidates)
    _check_splits(made)
    return made


def _objective(plan: Plan) -> dict[str, Any]:
    """Return what the runs are for: the primary's score, unless the run file says its loss."""
    said = plan.config.objective
    if said is None:
        return {"tasks": [plan.primary]}
    if set(said.tasks) != {plan.primary}:
        raise UserError(
            f"objective: expected the primary task {plan.primary} alone, because not every run has"
            f" the others, found {', '.join(said.tasks)}"
        )
    return said.model_dump()


def _check_splits(plan: Plan) -> None:
    """Raise if a task has no data to train on, or to be scored on."""
    from taskmix.training.prepare import resolve
    from taskmix.training.run import by_name

    for task in resolve(plan.config, by_name(plan.tasks)):
        role = "primary" if task.name == plan.primary else "candidate"
        for split in ("train", "dev"):
            if split not in task.splits:
                there = ", ".join(task.splits) or "none"
                raise UserError(f"{role} {task.name}: expected {split} data, found {there}")


def _jsonable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
