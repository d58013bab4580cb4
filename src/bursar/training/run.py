"""A run in its folder: start it, resume it, score it, predict with it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from bursar.config import RunConfig, build_decider, changed, dump
from bursar.errors import RunInterruptedError, UserError, unknown
from bursar.journal import Journal, Opening, repair
from bursar.models import store
from bursar.models.multitask import MultiTaskModel
from bursar.policies import Policy
from bursar.selection import Selector
from bursar.tasks.task import Task
from bursar.tasks.tokenizer import Tokenizer
from bursar.training import checkpoints
from bursar.training.checkpoints import Snapshot
from bursar.training.evaluation import baseline, mean
from bursar.training.files import whole_folder, write_whole
from bursar.training.folder import (
    CHECKPOINTS,
    JOURNAL,
    MODEL,
    RUN,
    SCORES,
    Finished,
    Scores,
    config_of,
    finished,
)
from bursar.training.policy import PolicyTrainer
from bursar.training.prepare import (
    Prepared,
    Reading,
    prepare,
    resolve,
    run_info_of,
    tokenizer_of,
)
from bursar.training.selecting import SelectionTrainer
from bursar.training.trainer import Job, Trainer, Watcher, pick_device
from bursar.training.weighting import WeightingTrainer


@dataclass
class Progress:
    """How the evaluations have gone so far.

    Args:
        kept_step: the step of the model to keep: the best one or the last one.
        kept_score: the run's score there.
        kept: and the tasks' scores.
        best_score: the highest score so far.
        stale: evaluations since then.
    """

    kept_step: int | None = None
    kept_score: float | None = None
    kept: dict[str, Scores] | None = None
    best_score: float | None = None
    stale: int = 0


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    tasks: Mapping[str, Task] | None = None,
    cache: Path | None = None,
    watchers: Sequence[Watcher] = (),
    reading: Reading | None = None,
) -> Finished:
    """Train as the configuration says, into a new run folder.

    Args:
        config: tasks, model, policy, budget, seed.
        folder: the run folder; there must be no run in it yet.
        tasks: tasks made in Python, by the name that the configuration calls them.
        cache: the folder for what is computed once, encoded splits above all.
        watchers: who looks on.
        reading: is told of the reading and encoding.
    """
    folder = Path(folder)
    _no_run_in(folder)
    parts = _assemble(config, tasks, cache, reading)
    _make(folder)
    with _locked(folder):
        _no_run_in(folder)  # another process may have been here meanwhile
        write_whole(folder / RUN, dump(config))
        return _Session(config, folder, parts, watchers).start()


def _no_run_in(folder: Path) -> None:
    if (folder / RUN).exists():
        raise UserError(
            f"{folder}: there is a run here already; go on with it by `bursar resume {folder}`, "
            "or choose another folder with --out"
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: expected a folder to write to, {error.strerror}") from None


def resume(
    folder: Path | str,
    *,
    tasks: Mapping[str, Task] | None = None,
    cache: Path | None = None,
    watchers: Sequence[Watcher] = (),
    reading: Reading | None = None,
) -> Finished:
    """Go on with a run from its last checkpoint, bit for bit as if it had never stopped."""
    folder = Path(folder)
    with _locked(folder):
        config = config_of(folder)
        if (folder / SCORES).exists():
            return finished(folder)
        parts = _assemble(config, tasks, cache, reading)
        session = _Session(config, folder, parts, watchers)
        checkpoint = checkpoints.latest(folder / CHECKPOINTS)
        return session.start() if checkpoint is None else session.go_on(checkpoint)


def change_tasks(
    folder: Path | str,
    *,
    add: Sequence[str | dict[str, Any]] = (),
    drop: Sequence[str] = (),
    tasks: Mapping[str, Task] | None = None,
    cache: Path | None = None,
    reading: Reading | None = None,
) -> None:
    """Give an unfinished run other tasks; `resume` then goes on with them.

    The encoder, the heads of the tasks that stay, their optimiser state and their place in the data
    are taken over. A new head starts from its first weights, and the policy starts anew: what it
    learned was about other tasks.

    Args:
        folder: the run folder.
        add: tasks as a run file says them.
        drop: names of tasks of the run.
        tasks: tasks made in Python, by name.
        cache: the folder for what is computed once, encoded splits above all.
        reading: is told of the reading and encoding.
    """
    folder = Path(folder)
    with _locked(folder):
        config = config_of(folder)
        checkpoint = checkpoints.latest(folder / CHECKPOINTS)
        if config.decides != "policy" or checkpoint is None or (folder / SCORES).exists():
            raise UserError(
                f"{folder}: tasks can be changed in an unfinished run of a policy that has a "
                "checkpoint, and this is none"
            )
        config = _with_tasks(config, add, drop)
        session = _Session(config, folder, _assemble(config, tasks, cache, reading), ())
        session.adopt(checkpoints.load(checkpoint))
        write_whole(folder / RUN, dump(config))


def _with_tasks(
    config: RunConfig, add: Sequence[str | dict[str, Any]], drop: Sequence[str]
) -> RunConfig:
    names = {_name(entry): entry for entry in config.tasks}
    for name in drop:
        if name not in names:
            raise unknown("task", name, names, "drop")
        del names[name]
    return changed(config, {"tasks": [*names.values(), *add]}, "tasks")


def _name(entry: str | dict[str, Any]) -> str:
    return entry if isinstance(entry, str) else str(entry.get("name"))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Nobody else runs in this folder; the lock goes with the process, however that ends."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"{folder}: another process is running in this folder") from None
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class _Parts:
    """Everything a session is made of, built before a file is touched."""

    prepared: list[Prepared]
    tokenizer: Tokenizer | None
    model: MultiTaskModel
    cache: Path | None

    @cached_property  # it reads all of the files
    def data(self) -> dict[str, str]:
        """By task, what names the content of its training split."""
        return {entry.task.name: entry.task.split("train").fingerprint() for entry in self.prepared}


def _assemble(
    config: RunConfig,
    given: Mapping[str, Task] | None,
    cache: Path | None,
    reading: Reading | None,
) -> _Parts:
    tasks = resolve(config, given)
    tokenizer = tokenizer_of(tasks, config.model, cache)
    prepared = prepare(tasks, tokenizer, config, cache, reading)
    build_decider(config, run_info_of(config, prepared))
    kinds = {entry.task.name: entry.task.kind for entry in prepared}
    model = store.build(config.model, kinds, tokenizer, config.seed)
    return _Parts(prepared, tokenizer, model.to(pick_device(config.device)), cache)


class _Session:
    """One process's part of a run."""

    def __init__(
        self, config: RunConfig, folder: Path, parts: _Parts, watchers: Sequence[Watcher]
    ) -> None:
        self.config = config
        self.folder = folder
        self.parts = parts
        self.watchers = watchers
        self.progress = Progress()
        self.facts = run_info_of(config, parts.prepared)

    def start(self) -> Finished:
        """From the first step."""
        path = self.folder / JOURNAL
        path.unlink(missing_ok=True)
        with Journal.create(path, self._opening()) as journal:
            return self._spend(self._trainer(journal))

    def _opening(self) -> Opening:
        return Opening(
            self.config.name,
            self.facts.tasks,
            dict(self.facts.sizes),
            self.config.seed,
            self.config.decider,
            self.config.budget.model_dump(),
        )

    def adopt(self, snapshot: Snapshot) -> None:
        """Make the checkpoint of a run with other tasks one of this configuration."""
        position = snapshot.state["journal"]
        with Journal.resume(self.folder / JOURNAL, position) as journal:
            journal.append(self._opening())
            trainer = self._trainer(journal)
            trainer.adopt(snapshot.step, snapshot.state["trainer"], snapshot.model)
            trainer.load_optimizer_tensors(snapshot.optimizer)
            self._checkpoint(trainer)

    def go_on(self, checkpoint: Path) -> Finished:
        """From a checkpoint."""
        snapshot = checkpoints.load(checkpoint)
        if snapshot.state["config"] != _digest(self.config):
            raise UserError(
                f"{checkpoint}: this checkpoint is of another configuration than "
                f"{self.folder / RUN}; put the file back as it was, or start another run"
            )
        for name, content in self.parts.data.items():
            if snapshot.state["data"].get(name) != content:
                raise UserError(
                    f"task {name}: its training data are not those that this run was begun with; "
                    "put them back, or start another run"
                )
        if not (self.folder / JOURNAL).exists():
            raise UserError(
                f"{self.folder}: expected a {JOURNAL} beside the checkpoint, found none"
            )
        repair(self.folder / JOURNAL)
        position = snapshot.state["journal"]
        with Journal.resume(self.folder / JOURNAL, position) as journal:
            trainer = self._trainer(journal)
            trainer.model.load_state_dict(snapshot.model)
            trainer.load_optimizer_tensors(snapshot.optimizer)
            trainer.load_state_dict(snapshot.step, snapshot.state["trainer"])
            self.progress = _progress(snapshot.state["progress"])
            return self._spend(trainer)

    def _trainer(self, journal: Journal) -> Trainer:
        decider = build_decider(self.config, self.facts)
        parts = self.parts
        job = Job(self.config, parts.prepared, parts.model, journal, self.watchers, parts.cache)
        if isinstance(decider, Policy):
            return PolicyTrainer(job, decider)
        if isinstance(decider, Selector):
            return SelectionTrainer(job, decider)
        return WeightingTrainer(job, decider)

    def _spend(self, trainer: Trainer) -> Finished:
        """Steps, evaluations and checkpoints until the budget is spent."""
        try:
            with torch.random.fork_rng():
                while trainer.step < self.config.length and not self._stopped():
                    trainer.advance()
                    self._after_step(trainer)
                return self._finish(trainer)
        except (OSError, SafetensorError) as error:
            raise RunInterruptedError(
                f"{self.folder}: {error}; the last checkpoint is whole, "
                f"go on from it by `bursar resume {self.folder}`"
            ) from error

    def _stopped(self) -> bool:
        patience = self.config.evaluate.patience
        return patience is not None and self.progress.stale >= patience

    def _after_step(self, trainer: Trainer) -> None:
        last = trainer.step == self.config.length
        keep = False
        if last or trainer.step % self.config.evaluate_every == 0:
            keep = self._evaluate(trainer)
        if last or keep or self._stopped() or trainer.step % self.config.checkpoint_every == 0:
            self._checkpoint(trainer)

    def _evaluate(self, trainer: Trainer) -> bool:
        """Score the run; whether this model is now the one to keep."""
        scores, score = trainer.evaluate()
        progress = self.progress
        selection_score = trainer.selection_score(scores, score)
        better = progress.best_score is None or selection_score > progress.best_score
        if better:
            progress.best_score, progress.stale = selection_score, 0
        else:
            progress.stale += 1
        keep = better or self.config.evaluate.keep == "last"
        if keep:
            progress.kept_step, progress.kept_score, progress.kept = trainer.step, score, scores
        for watcher in self.watchers:
            watcher.evaluated(trainer.step, scores, score, better)
        return keep

    def _checkpoint(self, trainer: Trainer) -> None:
        trainer.journal.sync()  # before its position is relied upon
        state = {
            "config": _digest(self.config),
            "data": self.parts.data,
            "journal": trainer.journal.position,
            "trainer": trainer.state_dict(),
            "progress": asdict(self.progress),
        }
        snapshot = Snapshot(
            trainer.step, trainer.model.state_dict(), trainer.optimizer_tensors(), state
        )
        checkpoints.save(self.folder / CHECKPOINTS, snapshot)
        self._prune()

    def _prune(self) -> None:
        newest, kept = self.config.checkpoint.keep, self.progress.kept_step
        checkpoints.prune(self.folder / CHECKPOINTS, newest, kept)

    def _finish(self, trainer: Trainer) -> Finished:
        """Write the model to keep, and write the scores: the sign that the run is over."""
        progress = self.progress
        # The last step is always scored, so that there is something to keep.
        assert progress.kept_step is not None
        assert progress.kept_score is not None
        assert progress.kept is not None
        self._prune()  # a process killed in doing so may have left half a checkpoint
        kept = checkpoints.load(self.folder / CHECKPOINTS / f"step-{progress.kept_step}")
        trainer.model.load_state_dict(kept.model)
        with whole_folder(self.folder / MODEL) as aside:
            store.save(trainer.model.cpu(), self.parts.tokenizer, self.config.model, aside)
        result = Finished(
            progress.kept_step,
            progress.kept_score,
            {name: self._beside_baseline(name, scores) for name, scores in progress.kept.items()},
            trainer.spent.forward,
            trainer.spent.backward,
        )
        write_whole(self.folder / SCORES, json.dumps(asdict(result), indent=2) + "\n")
        return result

    def _beside_baseline(self, name: str, scores: Scores) -> Scores:
        """A task's scores with what predicting without looking earns."""
        [entry] = [each for each in self.parts.prepared if each.task.name == name]
        return replace(scores, baseline=mean(baseline(entry.task, entry.train, entry.dev)))


def _digest(config: RunConfig) -> str:
    return blake2b(dump(config).encode(), digest_size=16).hexdigest()


def _progress(values: dict[str, Any]) -> Progress:
    kept = values.pop("kept")
    scores = {name: Scores(**value) for name, value in kept.items()} if kept else None
    return Progress(**values, kept=scores)
