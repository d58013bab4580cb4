"""Studies whose trials are runs, shared by any number of workers on any number of machines."""

import logging
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any

from taskmix.errors import TaskmixError, RunInterruptedError, UserError
from taskmix.studies.locks import Held
from taskmix.studies.storage import Storage
from taskmix.training.stopping import stoppable

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

log = logging.getLogger(__name__)
SLOT = "slot"
"""The attribute of a trial that names its slot."""
_PURPOSE = "purpose"
_THREADS = "OMP_NUM_THREADS"

Play = Callable[["Trial"], float]
"""Does what a trial stands for and returns its value, the higher the better."""


@dataclass(frozen=True)
class Slot:
    """One piece of work of a study: a trial that has to be finished once.

    Args:
        key: its name in the study.
        params: parameters that are known beforehand; a sampler chooses the others.
    """

    key: str
    params: Mapping[str, Any] = field(default_factory=dict)


class SharedStudy:
    """A fixed number of trials, each finished exactly once, whoever is at work.

    A trial belongs to the worker that holds its lock, and a lock ends with its worker. So the trial
    of a worker that was killed is free at once, and the next worker that looks takes it up: with
    the same number, the same parameters and the same run folder, from its last checkpoint.

    Args:
        storage: where the study lives.
        name: of the study; workers that name the same study share it.
        sampler: chooses parameters; Optuna's default if None.
        pruner: says which trials are hopeless; nobody's if None.
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
        with _quiet():
            self._study = optuna.create_study(
                storage=storage.trials,
                study_name=name,
                direction="maximize",
                sampler=sampler,
                pruner=pruner or optuna.pruners.NopPruner(),
                load_if_exists=True,
            )

    def for_purpose(self, purpose: Mapping[str, Any]) -> None:
        """Raise unless this study was begun for the same purpose, or has just begun.

        Args:
            purpose: JSON-able values that all workers have to agree on.
        """
        with self.alone():
            known = self._study.user_attrs.get(_PURPOSE)
            if known is None:
                self._study.set_user_attr(_PURPOSE, dict(purpose))
                return
        for key in purpose:
            if known.get(key) != purpose[key]:
                raise UserError(
                    f"study {self.name}: expected {key} as it was begun with, {known.get(key)!r},"
                    f" found {purpose[key]!r}; give this study another name or another storage"
                )

    def prepare(self, slots: Sequence[Slot]) -> None:
        """Add the trials that are not there yet."""
        with self.alone():
            trials = self._study.get_trials(deepcopy=False)
            there = {trial.user_attrs[SLOT] for trial in trials}
            for slot in slots:
                if slot.key not in there:
                    self._study.enqueue_trial(dict(slot.params), user_attrs={SLOT: slot.key})

    def work(self, play: Play, keys: Sequence[str] | None = None) -> None:
        """Take up trials until all of them are finished, here or by other workers.

        An error leaves its trial unfinished: whoever comes next takes it up again.

        Args:
            play: trains. Raising Optuna's `TrialPruned` ends a trial without a value.
            keys: of the slots that are wanted; all if None.
        """
        with _quiet(), _resumable(self.name):
            while unfinished := self._unfinished(keys):
                with self._some_lock(unfinished) as number:
                    if not self._numbered(number).state.is_finished():
                        self._finish(number, play)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While one worker is inside, others of this study wait: to choose a point, for one."""
        with self._locks.wait(self.name):
            yield

    def finished(self) -> "dict[str, FrozenTrial]":
        """Return the finished trials by their slots' keys, in order."""
        trials = self._study.get_trials(deepcopy=False)
        return {t.user_attrs[SLOT]: t for t in trials if t.state.is_finished()}

    def _unfinished(self, keys: Sequence[str] | None) -> list[int]:
        trials = self._study.get_trials(deepcopy=False)
        return [
            trial.number
            for trial in trials
            if not trial.state.is_finished() and (keys is None or trial.user_attrs[SLOT] in keys)
        ]

    def _numbered(self, number: int) -> "FrozenTrial":
        return self._study.get_trials(deepcopy=False)[number]

    @contextmanager
    def _some_lock(self, numbers: Sequence[int]) -> Iterator[int]:
        """Hold the lock of the first trial that nobody is at; if there is none, wait for one."""
        held: Held | None = None
        for number in numbers:
            if (held := self._locks.take(self._lock(number))) is not None:
                break
        else:
            number = numbers[0]
            held = self._locks.wait(self._lock(number))
        with held:
            yield number

    def _lock(self, number: int) -> str:
        return f"{self.name}\x1f{number}"

    def _finish(self, number: int, play: Play) -> None:
        from optuna import TrialPruned
        from optuna.trial import Trial, TrialState

        study, frozen = self._study, self._numbered(number)
        if frozen.state == TrialState.WAITING:
            study._storage.set_trial_state_values(frozen._trial_id, TrialState.RUNNING)
        else:
            log.info("%s: trial %d is taken up again", self.name, number)
        # A trial that has its parameters keeps them; Optuna samples only what is missing.
        trial = Trial(study, frozen._trial_id)
        try:
            value = play(trial)
        except TrialPruned:
            study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            study.tell(trial, value, skip_if_finished=True)


@contextmanager
def _resumable(name: str) -> Iterator[None]:
    """Say of a storage that went away that nothing is lost."""
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
    """Keep Optuna from telling every trial; what matters is told by the runs."""
    from optuna import logging as optuna_logging

    before = optuna_logging.get_verbosity()
    optuna_logging.set_verbosity(optuna_logging.WARNING)
    try:
        yield
    finally:
        optuna_logging.set_verbosity(before)


@contextmanager
def helpers(count: int, work: Callable[..., object], *arguments: Any) -> Iterator[None]:
    """Let processes do the same work beside what is done inside the context.

    They take no part in the result: whoever is inside finishes what they leave, and so learns of
    anything that stopped them. Leaving with an error stops them, with a checkpoint each.

    Args:
        count: how many processes.
        work: a function of a module.
        arguments: its arguments, which have to be picklable.
    """
    processes: list[SpawnProcess] = []
    # Helpers are stopped too; a run has its own way inside it.
    with stoppable(lambda: "stopped; the same command goes on"), _divided_cores(count + 1):
        try:
            # One by one, so that those that were started are stopped if one cannot be.
            processes.extend(_started(number, work, arguments) for number in range(count))
            yield
        except BaseException:
            for process in processes:
                process.terminate()
            raise
        finally:
            for process in processes:
                process.join()


@contextmanager
def _divided_cores(workers: int) -> Iterator[None]:
    """Give each worker its share of the cores, unless the user has said how many threads."""
    if workers == 1 or _THREADS in os.environ:
        yield
        return
    import torch

    before, share = torch.get_num_threads(), max(1, (os.cpu_count() or 1) // workers)
    os.environ[_THREADS] = str(share)  # for the helpers
    torch.set_num_threads(share)
    try:
        yield
    finally:
        del os.environ[_THREADS]
        torch.set_num_threads(before)


def _started(number: int, work: Callable[..., object], arguments: Sequence[Any]) -> SpawnProcess:
    # Spawned, because a forked process inherits torch's threads as locks that nobody releases.
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_helped, args=(work, *arguments), name=f"worker-{number + 2}")
    try:
        process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UserError(
            "workers: expected tasks and a model that can be sent to another process: functions"
            f" and classes of a module, found {error}"
        ) from None
    return process


def _helped(work: Callable[..., object], *arguments: Any) -> None:
    try:
        work(*arguments)
    except TaskmixError as error:
        name = multiprocessing.current_process().name
        print(f"taskmix: {name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
