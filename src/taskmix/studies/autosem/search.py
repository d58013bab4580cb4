"""Stage 2: in what ratio the primary and the selected tasks are mixed."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig
from taskmix.policies import Utility
from taskmix.records import UnitRecord
from taskmix.search import RatioSpace
from taskmix.search.ratios import Ratio
from taskmix.studies.autosem.selection import SelectedTasks
from taskmix.studies.autosem.settings import Plan
from taskmix.studies.autosem.spent import StageCost
from taskmix.studies.autosem.warm_start import suggested
from taskmix.studies.storage import Storage
from taskmix.studies.workers import SharedStudy, Slot
from taskmix.training.folder import CHECKPOINTS, Scores
from taskmix.training.objective import objective_value

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial, Trial

FOLDER = "search"
STARTUP = 4
"""Trials that are finished before any is pruned."""
WARMUP = 0.3
"""The share of the budget that no trial is pruned within."""


@dataclass(frozen=True)
class Tried:
    """A mixing ratio that was tried.

    Args:
        number: of the trial.
        ratio: by task, its mini-batches in a turn.
        value: the objective; of a pruned trial, its last one.
        pruned: whether it was ended early.
        spent: what it cost.
        curve: by step, the objective.
    """

    number: int
    ratio: Ratio
    value: float
    pruned: bool
    spent: StageCost
    curve: Mapping[int, float]


@dataclass(frozen=True)
class Search:
    """What stage 2 found.

    Args:
        space: the ratios that there are.
        tried: those that were tried, in order.
    """

    space: RatioSpace
    tried: Sequence[Tried]

    @property
    def best(self) -> Tried:
        """The finished trial with the highest value; of equal ones, the first."""
        return self.ranked()[0]

    def ranked(self) -> list[Tried]:
        """Return the trials, finished ones first, the best of them first."""
        return sorted(self.tried, key=lambda t: (t.pruned, -t.value, t.number))

    @property
    def spent(self) -> StageCost:
        """What all trials cost."""
        return StageCost.total(each.spent for each in self.tried)

    @property
    def alone(self) -> Tried | None:
        """The trial of the primary alone, if it was tried."""
        lone = [t for t in self.tried if sum(t.ratio.values()) == t.ratio[self.space.primary]]
        return lone[0] if lone else None


def search(plan: Plan, selection: SelectedTasks, storage: Storage) -> Search:
    """Try mixing ratios, each in a whole run; or find that it is done.

    Args:
        plan: of the study.
        selection: what stage 1 found.
        storage: where the study lives.
    """
    settings = plan.settings
    space = RatioSpace(
        plan.primary, selection.auxiliaries, settings.primary_range, settings.auxiliary_range
    )
    known = first_ratios(plan, space, selection.utilities)
    slots = _slots(plan, space, known)
    initial = len(known) if settings.warm_start else min(settings.initial, len(slots))
    sampler = space.sampler(seed=plan.config.seed, initial=initial)
    length = plan.trying(dict.fromkeys(space.tasks, 1)).length
    pruner = _pruner(length) if settings.prune else None
    study = SharedStudy(storage, plan.study("search"), sampler, pruner)
    study.for_purpose(plan.purpose() | {"auxiliaries": list(space.auxiliaries)})
    study.prepare(slots)
    study.work(partial(_play, plan, space, study))
    return Search(space, [_tried(space, trial) for trial in study.finished().values()])


def first_ratios(plan: Plan, space: RatioSpace, utilities: Sequence[Utility]) -> list[Ratio]:
    """Return the ratios that are known beforehand, the primary alone first.

    What the primary reaches alone is what every other ratio has to beat, so it is always tried.

    Args:
        plan: of the study.
        space: the ratios there are.
        utilities: what stage 1 found.
    """
    settings = plan.settings
    if settings.without == "search":
        return space.grid(_most(space, settings.trials))
    alone = [{space.primary: 1} | dict.fromkeys(space.auxiliaries, 0)]
    known = [*alone, *(suggested(space, utilities) if settings.warm_start else [])]
    reachable = [ratio for ratio in known if _inside(space, ratio)]
    distinct = {tuple(each.values()): each for each in map(space.canonical, reachable)}
    return list(distinct.values())[: settings.trials]


def _inside(space: RatioSpace, ratio: Mapping[str, int]) -> bool:
    return all(ratio[task] > 0 or low == 0 for task, (low, _) in space.ranges.items())


def _slots(plan: Plan, space: RatioSpace, known: Sequence[Ratio]) -> list[Slot]:
    """Return the trials of the study; the sampler fills those whose ratio is not known."""
    settings = plan.settings
    saved = max(0, settings.initial - len(known)) if settings.warm_start else 0
    count = max(len(known), _most(space, settings.trials - saved))
    free = [Slot(f"trial-{number}") for number in range(len(known), count)]
    return [*(Slot(f"trial-{number}", ratio) for number, ratio in enumerate(known)), *free]


def _most(space: RatioSpace, count: int) -> int:
    """Return how many different ratios there are, at most `count`."""
    points = product(*(range(low, high + 1) for low, high in space.ranges.values()))
    return sum(1 for _ in islice(_different(space, points), count))


def _different(space: RatioSpace, points: Iterator[tuple[int, ...]]) -> Iterator[Ratio]:
    seen = set()
    for point in points:
        ratio = space.canonical(dict(zip(space.tasks, point, strict=True)))
        if tuple(ratio.values()) not in seen:
            seen.add(tuple(ratio.values()))
            yield ratio


def _pruner(length: int) -> "BasePruner":
    """Return what ends a trial whose best score so far is below the median of the others."""
    from optuna.pruners import MedianPruner

    return MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=int(WARMUP * length))


def _play(plan: Plan, space: RatioSpace, study: SharedStudy, trial: "Trial") -> float:
    from optuna import TrialPruned

    with study.alone():  # so that no two workers choose without knowing of each other
        ratio = space.suggest(trial)
    config = plan.trying(space.canonical(ratio))
    folder = folder_of(plan, trial.number)
    title = f"trial {trial.number}, {':'.join(map(str, ratio.values()))}"
    try:
        done = plan.run(config, folder, title, [Reporter(trial, config, plan.settings.prune)])
    except TrialPruned:
        StageCost.on(folder).note(trial)
        _tidy(folder)
        raise
    StageCost.on(folder).note(trial)
    _tidy(folder)
    assert done.objective is not None
    return done.objective


def folder_of(plan: Plan, number: int) -> Path:
    """Return the run folder of a trial."""
    return plan.out / FOLDER / f"trial-{number:03d}"


def _tidy(folder: Path) -> None:
    """Remove checkpoints that nobody will go on from: twenty runs would fill a disk with them."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _tried(space: RatioSpace, trial: "FrozenTrial") -> Tried:
    assert trial.value is not None
    return Tried(
        trial.number,
        space.canonical(trial.params),
        trial.value,
        trial.state.name == "PRUNED",
        StageCost.of(trial),
        dict(trial.intermediate_values),
    )


class Reporter:
    """A watcher that reports the objective of a run to its trial, and ends a hopeless one.

    Args:
        trial: to report to.
        config: of the run, with its objective.
        prune: whether to ask the study's pruner.
    """

    def __init__(self, trial: "Trial", config: RunConfig, prune: bool) -> None:
        self._trial = trial
        self._config = config
        self._prune = prune
        # A run that is taken up again is scored again where it had been scored before.
        frozen = trial.study.get_trials(deepcopy=False)[trial.number]
        self._reported = set(frozen.intermediate_values)

    def reading(self, task: str, split: str, rows: int) -> None:
        """Nothing."""

    def working(self, text: str) -> None:
        """Nothing."""

    def advanced(self, record: UnitRecord) -> None:
        """Nothing."""

    def evaluated(self, step: int, scores: Mapping[str, Scores], score: float, best: bool) -> None:
        """Report; raise if the trial is hopeless and there are steps left to save."""
        from optuna import TrialPruned

        objective: Any = self._config.objective
        if step not in self._reported:
            self._reported.add(step)
            self._trial.report(objective_value(objective, scores), step)
        if self._prune and step < self._config.length and self._trial.should_prune():
            raise TrialPruned(f"step {step}")
