"""Optuna studies whose trials are runs, shared by workers on any number of machines."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from taskmix.errors import RunInterruptedError
from taskmix.studies.locks import Held
from taskmix.studies.storage import Storage
from taskmix.studies.workers import check_same_settings

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

log = logging.getLogger(__name__)
KEY = "slot"
"""The user attribute of a trial that holds its key; the word is that of studies on disk."""
_SETTINGS = "purpose"
"""The user attribute of a study that holds its settings; likewise."""

TrialObjective = Callable[["Trial"], float]
"""Runs a trial and returns its value; higher is better."""


class SharedStudy:
    """A fixed number of trials, each finished exactly once, whatever happens to the workers.

    A trial belongs to the worker that holds its lock, and a lock ends with its worker. The next
    worker resumes the trial of a worker that was killed: with the same number, the same parameters
    and the same run folder, from its last checkpoint. Optuna itself cannot resume a trial.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        sampler: "BaseSampler | None" = None,
        pruner: "BasePruner | None" = None,
    ) -> None:
        import optuna

        self.name = name
        self._locks = storage.locks
        self._trials = storage.trials
        with _quiet():
            self._study = optuna.create_study(
                storage=storage.trials,
                study_name=name,
                direction="maximize",
                sampler=sampler,
                pruner=pruner or optuna.pruners.NopPruner(),
                load_if_exists=True,
            )

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Keep the JSON-able settings of a new study; raise if those of an old one differ."""
        with self.locked():
            known = self._study.user_attrs.get(_SETTINGS)
            if known is None:
                self._study.set_user_attr(_SETTINGS, dict(settings))
                return
        remedy = "give this study another name or another storage"
        check_same_settings(f"study {self.name}", known, settings, remedy)

    def add_trials(self, planned: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the trials that the study does not have yet, from parameters by key.

        The sampler chooses the parameters that are not given.
        """
        with self.locked():
            existing = {trial.user_attrs[KEY] for trial in self._study.get_trials(deepcopy=False)}
            for key, params in planned.items():
                if key not in existing:
                    self._study.enqueue_trial(dict(params), user_attrs={KEY: key})

    def run_trials(self, objective: TrialObjective, keys: Sequence[str] | None = None) -> None:
        """Run trials until all of them are finished, here or by other workers.

        An error leaves its trial unfinished, and the next worker resumes it. Optuna's `TrialPruned`
        ends a trial without a value.
        """
        with _quiet(), _storage_errors(self.name):
            while unfinished := self._unfinished(keys):
                names = {f"{self.name}\x1f{number}": number for number in unfinished}
                with self._locks.first_free(list(names)) as name:
                    number = names[name]
                    if not self._frozen(number).state.is_finished():
                        self._run_trial(number, objective)

    def locked(self) -> Held:
        """Hold the study's lock: no two workers add trials or sample parameters at once."""
        return self._locks.wait(self.name)

    def finished_trials(self) -> "dict[str, FrozenTrial]":
        """Return the finished trials by their keys, in order."""
        trials = self._study.get_trials(deepcopy=False)
        return {trial.user_attrs[KEY]: trial for trial in trials if trial.state.is_finished()}

    def _unfinished(self, keys: Sequence[str] | None) -> list[int]:
        trials = self._study.get_trials(deepcopy=False)
        return [
            trial.number
            for trial in trials
            if not trial.state.is_finished() and (keys is None or trial.user_attrs[KEY] in keys)
        ]

    def _frozen(self, number: int) -> "FrozenTrial":
        return self._study.get_trials(deepcopy=False)[number]

    def _run_trial(self, number: int, objective: TrialObjective) -> None:
        from optuna import TrialPruned
        from optuna.trial import Trial, TrialState

        study_id = self._trials.get_study_id_from_name(self.name)
        trial_id = self._trials.get_trial_id_from_study_id_trial_number(study_id, number)
        if self._frozen(number).state == TrialState.WAITING:
            self._trials.set_trial_state_values(trial_id, TrialState.RUNNING)
        else:
            log.info("%s: trial %d is resumed", self.name, number)
        # A trial that has its parameters keeps them; Optuna samples only those that are missing.
        trial = Trial(self._study, trial_id)
        try:
            value = objective(trial)
        except TrialPruned:
            self._study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            self._study.tell(trial, value, skip_if_finished=True)


@contextmanager
def _storage_errors(name: str) -> Iterator[None]:
    """Turn the failure of a storage into a sentence that says how to resume."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        why = str(error.__cause__ or error).splitlines()[0]
        raise RunInterruptedError(
            f"study {name}: its storage failed: {why}; the same command goes on"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's line about each trial; the runs show their own progress."""
    from optuna import logging as optuna_logging

    before = optuna_logging.get_verbosity()
    optuna_logging.set_verbosity(optuna_logging.WARNING)
    try:
        yield
    finally:
        optuna_logging.set_verbosity(before)
