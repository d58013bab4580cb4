"""The final training with the best ratio."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from taskmix.studies.autosem.search import Search, folder_of
from taskmix.studies.autosem.settings import Plan
from taskmix.studies.autosem.spent import StageCost
from taskmix.studies.storage import Storage
from taskmix.studies.workers import SLOT, SharedStudy, Slot
from taskmix.training.folder import SCORES

if TYPE_CHECKING:
    from optuna.trial import Trial

FOLDER = "final"


@dataclass(frozen=True)
class FinalRun:
    """A training with the best ratio.

    Args:
        seed: of the run.
        folder: of the run; its `model` is the trained model.
        value: the objective.
        spent: what it cost; nothing where the run is that of the best trial.
    """

    seed: int
    folder: Path
    value: float
    spent: StageCost


def train(plan: Plan, found: Search, storage: Storage) -> list[FinalRun]:
    """Train with the best ratio and each seed; or find that it is done.

    Args:
        plan: of the study.
        found: what stage 2 found.
        storage: where the study lives.
    """
    study = SharedStudy(storage, plan.study("final"))
    study.for_purpose(plan.purpose() | {"ratio": dict(found.best.ratio)})
    keys = {seed: f"seed-{seed}" for seed in plan.seeds}
    study.prepare([Slot(key) for key in keys.values()])
    seeds = {key: seed for seed, key in keys.items()}
    study.work(partial(_play, plan, found, seeds), list(seeds))
    done = study.finished()
    return [
        FinalRun(seed, _folder(plan, found, seed), done[key].value or 0.0, StageCost.of(done[key]))
        for seed, key in keys.items()
    ]


def _folder(plan: Plan, found: Search, seed: int) -> Path:
    """Return the folder of a final run: the best trial's own run, if that is what it would be."""
    if _is_best_trial(plan, seed):
        return folder_of(plan, found.best.number)
    return plan.out / FOLDER / f"seed-{seed}"


def _is_best_trial(plan: Plan, seed: int) -> bool:
    """Return whether the best trial had this seed, and all of the budget."""
    return seed == plan.config.seed and plan.settings.trial_budget == 1


def _play(plan: Plan, found: Search, seeds: dict[str, int], trial: "Trial") -> float:
    seed = seeds[trial.user_attrs[SLOT]]
    folder = _folder(plan, found, seed)
    there = (folder / SCORES).exists()
    done = plan.run(plan.mixing(found.best.ratio, seed), folder, f"final, seed {seed}")
    ours = _is_best_trial(plan, seed) and there
    (StageCost() if ours else StageCost.on(folder)).note(trial)
    assert done.objective is not None
    return done.objective
