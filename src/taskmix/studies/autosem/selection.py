"""Stage 1: which candidates help the primary task."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from taskmix.errors import UserError
from taskmix.journal import Step, read_latest
from taskmix.policies import Outcome, Thompson, Utility
from taskmix.policies.thompson import helpful
from taskmix.studies.autosem.settings import Plan
from taskmix.studies.autosem.spent import StageCost
from taskmix.studies.storage import Storage
from taskmix.studies.workers import SharedStudy, Slot
from taskmix.training.folder import JOURNAL

if TYPE_CHECKING:
    from optuna.trial import Trial

FOLDER = "selection"
_KEY = "utilities"


@dataclass(frozen=True)
class SelectedTasks:
    """What stage 1 found.

    Args:
        auxiliaries: the candidates that go on to stage 2, the most useful first.
        utilities: of all tasks, the primary too; empty if there was no stage 1.
        spent: what it cost.
    """

    auxiliaries: tuple[str, ...]
    utilities: Sequence[Utility] = ()
    spent: StageCost = field(default_factory=StageCost)


def select(plan: Plan, storage: Storage) -> SelectedTasks:
    """Train once with Thompson sampling, and select; or find that it is done.

    Args:
        plan: of the study.
        storage: where it lives.
    """
    if plan.settings.without == "selection":
        return SelectedTasks(plan.candidates)
    study = SharedStudy(storage, plan.study("selection"))
    study.for_purpose(plan.purpose())
    study.prepare([Slot("run")])
    study.work(lambda trial: _play(plan, trial))
    found = study.finished()["run"]
    utilities = [Utility(**values) for values in found.user_attrs[_KEY]]
    return SelectedTasks(_auxiliaries(plan, utilities), utilities, StageCost.of(found))


def _play(plan: Plan, trial: "Trial") -> float:
    folder = plan.out / FOLDER
    done = plan.run(plan.selecting(), folder, "stage 1")
    utilities = replayed(plan, folder).utilities()
    trial.set_user_attr(_KEY, [asdict(each) for each in utilities])
    StageCost.on(folder).note(trial)
    assert done.objective is not None
    return done.objective


def replayed(plan: Plan, folder: Path) -> Thompson:
    """Return the policy of stage 1 as it was at the end, from the run's journal.

    Args:
        plan: of the study.
        folder: of the run.
    """
    options = {key: value for key, value in plan.selecting().decider.items() if key != "name"}
    policy = Thompson([plan.primary, *plan.candidates], **options)
    for record in read_latest(folder / JOURNAL):
        if isinstance(record, Step):
            draw = policy.replay(policy.tasks.index(record.task))
            policy.tell(Outcome(draw, score=record.score))
    return policy


def _auxiliaries(plan: Plan, utilities: Sequence[Utility]) -> tuple[str, ...]:
    settings = plan.settings
    _, *chosen = helpful(
        utilities, plan.primary, settings.top, settings.threshold, settings.credibility
    )
    if not chosen:
        raise UserError(
            f"selection: expected a candidate that was given a round, found none in"
            f" {settings.rounds} rounds; ask for more rounds"
        )
    return tuple(chosen)
