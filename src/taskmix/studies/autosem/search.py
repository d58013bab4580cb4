"""Stage 2: search the ratio in which the primary and the selected tasks are mixed."""

import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig
from taskmix.errors import DivergedError, UserError
from taskmix.policies import Utility
from taskmix.search import RatioSpace
from taskmix.search.ratios import Ratio
from taskmix.studies.autosem.settings import Plan, StageCost
from taskmix.studies.shared_study import SharedStudy
from taskmix.studies.storage import Storage
from taskmix.training.folder import CHECKPOINTS, SCORES, Scores
from taskmix.training.objective import objective_value
from taskmix.training.watching import Watcher

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial, Trial

log = logging.getLogger(__name__)
STARTUP_TRIALS = 4
"""Trials that are finished before any is pruned."""
WARMUP = 0.3
"""The fraction of the budget within which no trial is pruned."""


@dataclass(frozen=True)
class Tried:
    """A mixing ratio that was tried.

    Args:
        number: of the trial.
        ratio: by task, its mini-batches in a cycle.
        value: of the objective; of a pruned trial, the latest one; minus infinity if it diverged.
        pruned: whether it was ended early.
        spent: the cost of the trial.
        curve: by step, the objective.
    """

    number: int
    ratio: Ratio
    value: float
    pruned: bool
    spent: StageCost
    curve: Mapping[int, float]

    @property
    def ratio_text(self) -> str:
        return ratio_text(self.ratio)

    @property
    def diverged(self) -> bool:
        return math.isinf(self.value)


@dataclass(frozen=True)
class Search:
    """The result of stage 2.

    Args:
        space: the ratios that were searched.
        tried: those that were tried, in order.
    """

    space: RatioSpace
    tried: Sequence[Tried]

    @property
    def best(self) -> Tried:
        """The finished trial with the highest value; the earliest of equal ones."""
        best = self.ranked()[0]
        if best.diverged:
            raise UserError(
                "search: expected a ratio whose training does not diverge, found none in"
                f" {len(self.tried)} trials; look at the data or lower optimizer.lr"
            )
        return best

    def ranked(self) -> list[Tried]:
        """Return the finished trials, best first, and then the pruned ones, best first."""
        return sorted(self.tried, key=lambda t: (t.pruned, -t.value, t.number))

    @property
    def spent(self) -> StageCost:
        """The cost of all trials."""
        return StageCost.total(trial.spent for trial in self.tried)

    @property
    def alone(self) -> Tried | None:
        """The trial of the primary alone, if it was tried."""
        alone = [t for t in self.tried if sum(t.ratio.values()) == t.ratio[self.space.primary]]
        return alone[0] if alone else None


def search_ratios(
    plan: Plan, auxiliaries: Sequence[str], utilities: Sequence[Utility], storage: Storage
) -> Search:
    """Try mixing ratios, each in a run; finished trials are read."""
    settings = plan.settings
    space = RatioSpace(plan.primary, auxiliaries, settings.primary_range, settings.auxiliary_range)
    fixed = _fixed_ratios(plan, space, utilities)
    trials = _planned_trials(plan, space, fixed)
    initial = len(fixed) if settings.warm_start else min(settings.initial, len(trials))
    sampler = space.sampler(seed=plan.config.seed, initial=initial)
    pruner = _pruner(plan, space) if settings.prune else None
    study = SharedStudy(storage, plan.study_name("search"), sampler, pruner)
    study.check_settings(plan.study_settings() | {"auxiliaries": list(auxiliaries)})
    study.add_trials(trials)
    study.run_trials(partial(_run_trial, plan, space, study))
    return Search(space, [_tried(space, trial) for trial in study.finished_trials().values()])


def _fixed_ratios(plan: Plan, space: RatioSpace, utilities: Sequence[Utility]) -> list[Ratio]:
    """Return the ratios that the sampler does not choose.

    The primary alone is always among them, as the baseline of every other ratio.
    """
    settings = plan.settings
    if settings.without == "search":
        return space.grid(_count_ratios(space, settings.trials))
    alone = {space.primary: 1} | dict.fromkeys(space.auxiliaries, 0)
    ratios = [alone, *(suggested(space, utilities) if settings.warm_start else [])]
    allowed = [ratio for ratio in ratios if _zeros_allowed(space, ratio)]
    distinct = {tuple(ratio.values()): ratio for ratio in map(space.canonical, allowed)}
    return list(distinct.values())[: settings.trials]


def _zeros_allowed(space: RatioSpace, ratio: Mapping[str, int]) -> bool:
    return all(ratio[task] > 0 or low == 0 for task, (low, _) in space.ranges.items())


def _planned_trials(plan: Plan, space: RatioSpace, fixed: Sequence[Ratio]) -> dict[str, Ratio]:
    """Return the trials of the study by key: those of the fixed ratios, then the sampler's."""
    settings = plan.settings
    saved = max(0, settings.initial - len(fixed)) if settings.warm_start else 0
    count = max(len(fixed), _count_ratios(space, settings.trials - saved))
    ratios = [*fixed, *({} for _ in range(len(fixed), count))]
    return {f"trial-{number}": ratio for number, ratio in enumerate(ratios)}


def _count_ratios(space: RatioSpace, limit: int) -> int:
    """Return the number of different ratios in the space, at most `limit`."""
    distinct = set()
    for point in product(*(range(low, high + 1) for low, high in space.ranges.values())):
        ratio = space.canonical(dict(zip(space.tasks, point, strict=True)))
        distinct.add(tuple(ratio.values()))
        if len(distinct) >= limit:
            break
    return len(distinct)


def suggested(space: RatioSpace, utilities: Sequence[Utility]) -> list[Ratio]:
    """Return the ratios that stage 1's rounds suggest, for a warm start.

    They are: each auxiliary alone with the primary, in the proportion of their rounds; all of them
    together in that proportion; and all in equal parts. Each is the nearest ratio in the space.

    >>> space = RatioSpace("rte", ("qqp", "mnli"))
    >>> pulls = {"rte": 100, "qqp": 80, "mnli": 20}
    >>> utilities = [Utility(task, 0.5, 0.3, 0.7, n, 1.0, 1.0) for task, n in pulls.items()]
    >>> [tuple(ratio.values()) for ratio in suggested(space, utilities)]
    [(5, 4, 0), (5, 0, 1), (5, 4, 1), (1, 1, 1)]
    """
    pulls = {utility.task: float(max(1, utility.pulls)) for utility in utilities}
    primary = space.primary
    pairs = [{primary: pulls[primary], task: pulls[task]} for task in space.auxiliaries]
    together = [{task: pulls[task] for task in space.tasks}] if len(pairs) > 1 else []
    equal = dict.fromkeys(space.tasks, 1.0)
    return [nearest(space, weights) for weights in (*pairs, *together, equal)]


def nearest(space: RatioSpace, weights: Mapping[str, float]) -> Ratio:
    """Return the ratio in the space whose shares are nearest to those of the weights.

    >>> nearest(RatioSpace("rte", ("qqp",)), {"rte": 3, "qqp": 0.8})
    {'rte': 15, 'qqp': 4}
    """
    shares = [weights.get(task, 0.0) / sum(weights.values()) for task in space.tasks]
    low, high = space.primary_range
    ratios = [_with_primary(space, shares, count) for count in range(low, high + 1)]
    return space.canonical(min(ratios, key=lambda ratio: _distance(ratio, shares)))


def _with_primary(space: RatioSpace, shares: Sequence[float], count: int) -> Ratio:
    """Return the nearest ratio with this number of mini-batches of the primary."""
    low, high = space.auxiliary_range
    per_share = count / max(shares[0], 1e-9)
    others = [min(max(round(share * per_share), low), high) for share in shares[1:]]
    return dict(zip(space.tasks, [count, *others], strict=True))


def _distance(ratio: Mapping[str, int], shares: Sequence[float]) -> float:
    total = sum(ratio.values())
    return sum(
        abs(count / total - share) for count, share in zip(ratio.values(), shares, strict=True)
    )


def _pruner(plan: Plan, space: RatioSpace) -> "BasePruner":
    from optuna.pruners import MedianPruner

    length = plan.trial_config(dict.fromkeys(space.tasks, 1)).length
    return MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=int(WARMUP * length))


def _run_trial(plan: Plan, space: RatioSpace, study: SharedStudy, trial: "Trial") -> float:
    with study.locked():  # each worker samples with knowledge of the others' ratios
        ratio = space.suggest(trial)
    config = plan.trial_config(space.canonical(ratio))
    folder = trial_folder(plan, trial.number)
    title = f"trial {trial.number}, {ratio_text(ratio)}"
    reporter = Reporter(trial, config, plan.settings.prune)
    return run_in_trial(plan, trial, config, folder, title, [reporter])


def run_in_trial(
    plan: Plan,
    trial: "Trial",
    config: RunConfig,
    folder: Path,
    title: str,
    watchers: Sequence[Watcher] = (),
) -> float:
    """Train, store the cost in the trial, and return the objective.

    A training that diverges is the worst of all; raised, its error would end the study, and
    resuming the study would raise it again.
    """
    from optuna import TrialPruned

    try:
        value = plan.runner.run(config, folder, title, watchers).objective
    except TrialPruned:
        _close_trial(trial, folder)
        raise
    except DivergedError as error:
        log.warning("%s diverged: %s", title, error.reason)
        value = -math.inf
    _close_trial(trial, folder)
    assert value is not None
    return value


def _close_trial(trial: "Trial", folder: Path) -> None:
    """Store the cost of a trial; one that was pruned or diverged is not resumed."""
    StageCost.of_run(folder).store(trial)
    if not (folder / SCORES).exists():
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def ratio_text(ratio: Mapping[str, int]) -> str:
    """Return the ratio as the papers write it, such as 4:0:1."""
    return ":".join(map(str, ratio.values()))


def trial_folder(plan: Plan, number: int) -> Path:
    return plan.out / "search" / f"trial-{number:03d}"


def _tried(space: RatioSpace, trial: "FrozenTrial") -> Tried:
    assert trial.value is not None
    return Tried(
        trial.number,
        space.canonical(trial.params),
        trial.value,
        trial.state.name == "PRUNED",
        StageCost.of_trial(trial),
        dict(trial.intermediate_values),
    )


class Reporter(Watcher):
    """A watcher that reports a run's objective to its trial and prunes the trial if asked to."""

    def __init__(self, trial: "Trial", config: RunConfig, prune: bool) -> None:
        self._trial = trial
        self._config = config
        self._prune = prune
        # A resumed run repeats the evaluations after its checkpoint.
        frozen = trial.study.get_trials(deepcopy=False)[trial.number]
        self._reported = set(frozen.intermediate_values)

    def evaluated(self, step: int, scores: Mapping[str, Scores], score: float, best: bool) -> None:
        from optuna import TrialPruned

        objective: Any = self._config.objective
        if step not in self._reported:
            self._reported.add(step)
            self._trial.report(objective_value(objective, scores), step)
        # Optuna decides by the last report, which a resumed run may still have to come to.
        is_latest = step == max(self._reported)
        if self._prune and is_latest and step < self._config.length and self._trial.should_prune():
            raise TrialPruned(f"step {step}")
