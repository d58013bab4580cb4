"""Stage 1, which selects the candidates that help, and the final trainings."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from taskmix.errors import UserError
from taskmix.journal import replayed
from taskmix.policies import Thompson, Utility
from taskmix.policies.thompson import helpful
from taskmix.search.ratios import Ratio
from taskmix.studies.autosem.search import Search, ratio_text, run_in_trial
from taskmix.studies.autosem.settings import Plan, StageCost
from taskmix.studies.shared_study import KEY, SharedStudy
from taskmix.studies.storage import Storage
from taskmix.training.folder import JOURNAL

if TYPE_CHECKING:
    from optuna.trial import Trial

_UTILITIES = "utilities"
"""The user attribute of stage 1's trial."""


@dataclass(frozen=True)
class SelectedTasks:
    """The result of stage 1.

    Args:
        auxiliaries: the selected candidates, highest utility first.
        utilities: of all tasks, the primary too; empty if stage 1 was skipped.
        spent: the cost of stage 1.
    """

    auxiliaries: tuple[str, ...]
    utilities: Sequence[Utility] = ()
    spent: StageCost = field(default_factory=StageCost)


@dataclass(frozen=True)
class FinalRun:
    """A training with the best ratio, or with the primary alone.

    Args:
        seed: of the run; none of the search.
        ratio: by task, its mini-batches in a cycle.
        folder: of the run; its `model` is the trained model.
        value: of the objective; minus infinity if it diverged.
        spent: the cost of the run.
    """

    seed: int
    ratio: Ratio
    folder: Path
    value: float
    spent: StageCost


def select(plan: Plan, storage: Storage) -> SelectedTasks:
    """Train once with Thompson sampling and select candidates; a finished stage is read."""
    if plan.settings.without == "selection":
        return SelectedTasks(plan.candidates)
    study = SharedStudy(storage, plan.study_name("selection"))
    study.check_settings(plan.study_settings())
    study.add_trials({"run": {}})
    study.run_trials(partial(_run_selection, plan))
    trial = study.finished_trials()["run"]
    utilities = [Utility(**values) for values in trial.user_attrs[_UTILITIES]]
    return SelectedTasks(_auxiliaries(plan, utilities), utilities, StageCost.of_trial(trial))


def _run_selection(plan: Plan, trial: "Trial") -> float:
    folder = plan.out / "selection"
    finished = plan.runner.run(plan.selection_config(), folder, "stage 1")
    utilities = _replayed_policy(plan, folder).utilities()
    trial.set_user_attr(_UTILITIES, [asdict(utility) for utility in utilities])
    StageCost.of_run(folder).store(trial)
    assert finished.objective is not None
    return finished.objective


def _replayed_policy(plan: Plan, folder: Path) -> Thompson:
    """Return the policy of stage 1 as it was at the end, from the run's journal."""
    decider = plan.selection_config().decider
    options = {key: value for key, value in decider.items() if key != "name"}
    policy = Thompson([plan.primary, *plan.candidates], **options)
    return replayed(policy, folder / JOURNAL)


def _auxiliaries(plan: Plan, utilities: Sequence[Utility]) -> tuple[str, ...]:
    settings = plan.settings
    _, *auxiliaries = helpful(
        utilities, plan.primary, settings.top, settings.threshold, settings.credibility
    )
    if not auxiliaries:
        raise UserError(
            f"selection: expected a candidate that was given a round, found none in"
            f" {settings.rounds} rounds; ask for more rounds"
        )
    return tuple(auxiliaries)


def train_finals(plan: Plan, search: Search, storage: Storage) -> list[FinalRun]:
    """Train with the best ratio and with the primary alone, each with each seed.

    Finished runs are read.
    """
    alone = {plan.primary: 1} | dict.fromkeys(search.space.auxiliaries, 0)
    ratios = {ratio_text(ratio): ratio for ratio in (search.best.ratio, alone)}
    runs = {f"{text}/seed-{seed}": (text, seed) for text in ratios for seed in plan.seeds}
    study = SharedStudy(storage, plan.study_name("final"))
    study.check_settings(plan.study_settings())
    study.add_trials({key: {} for key in runs})

    def run_final(trial: "Trial") -> float:
        text, seed = runs[trial.user_attrs[KEY]]
        config = plan.ratio_config(ratios[text], seed)
        title = f"final {text}, seed {seed}"
        return run_in_trial(plan, trial, config, _final_folder(plan, text, seed), title)

    study.run_trials(run_final, list(runs))
    trials = study.finished_trials()
    return [
        FinalRun(
            seed,
            ratios[text],
            _final_folder(plan, text, seed),
            trials[key].values[0],
            StageCost.of_trial(trials[key]),
        )
        for key, (text, seed) in runs.items()
    ]


def _final_folder(plan: Plan, ratio: str, seed: int) -> Path:
    return plan.out / "final" / ratio.replace(":", "-") / f"seed-{seed}"
