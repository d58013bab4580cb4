"""A run in one process: steps, evaluations, checkpoints, the result."""

import json
import logging
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from taskmix.config import Resolved, RunConfig, asked_for, build_decider, dump
from taskmix.errors import RunInterruptedError, StoppedError, UserError
from taskmix.files import hash_of, sweep, whole_folder, write_whole
from taskmix.journal import Diagnostics, Evaluation, Journal, Opening, UnwrittenJournal, repair
from taskmix.models import saving
from taskmix.models.multitask import MultiTaskModel
from taskmix.training import checkpoints
from taskmix.training.assembly import Assembled
from taskmix.training.budget import counted, is_due, is_spent, part_spent
from taskmix.training.checkpoints import Snapshot
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine, check_finite
from taskmix.training.evaluation import baseline, mean
from taskmix.training.folder import CHECKPOINTS, JOURNAL, MODEL, RUN, SCORES, Finished, Scores
from taskmix.training.objective import improves, objective_value
from taskmix.training.prepare import run_info_of
from taskmix.training.ranks import ALONE, Ranks
from taskmix.training.stopping import Stop, listening
from taskmix.training.watching import Watchers

RANK_CHECK_EVERY = 50  # steps or rounds; ranks are also compared at evaluations and checkpoints
log = logging.getLogger(__name__)


@dataclass
class Selected:
    """The model to keep, according to the evaluations so far."""

    step: int | None = None
    score: float = 0.0
    scores: dict[str, Scores] | None = None
    objective: float = 0.0
    best: float | None = None  # the highest objective
    stale: int = 0  # evaluations since then


class Session:
    """Takes a run from its current state to its end."""

    def __init__(
        self, folder: Path, parts: Assembled, watchers: Watchers, ranks: Ranks = ALONE
    ) -> None:
        self.config = parts.config
        self.folder = folder
        self.parts = parts
        self.watchers = watchers
        self.ranks = ranks
        self.selected = Selected()
        self._info = run_info_of(parts.config, parts.prepared)

    def start(self) -> Finished:
        self.ranks.check_same(self._hashes)
        with self.ranks.together(self._journal) as journal:
            driver = self.driver(journal)
            # A model that was made in Python may have other first weights on each rank.
            self.ranks.send(list(driver.engine.model.state_dict().values()))
            if self.config.python_model is not None:
                self.checkpoint(driver)  # nobody else knows the first weights of a given model
            return self._spend(driver)

    def _hashes(self) -> dict[str, str]:
        """Return the hashes of the configuration and the data, which all ranks must share."""
        data = {f"the data of task {name}": content for name, content in self.parts.data.items()}
        return {"the configuration": config_hash(self.config)} | data

    def _journal(self, position: int | None = None) -> Journal:
        """Return a new journal, or the old one cut off at the position of a checkpoint."""
        if not self.ranks.writes:
            return UnwrittenJournal(len(self._info.tasks))
        path = self.folder / JOURNAL
        if position is None:
            path.unlink(missing_ok=True)
            return Journal.create(path, self.opening())
        repair(path)
        return Journal.resume(path, position)

    def opening(self) -> Opening:
        return Opening(
            self.config.name,
            self._info.tasks,
            dict(self._info.sizes),
            self.config.seed,
            self.config.decider,
            self.config.budget.model_dump(exclude={"count", "epochs"}, exclude_none=True),
            self.config.family.key,
            count=self.config.budget.count,
            objective=list(self._info.objective) or None,
            batches=dict(self._info.batches) or None,
            measure=self.config.objective.measure if self.config.objective else "score",
            warmup=self.config.optimizer.warmup if self.config.family.unit == "steps" else None,
            dev={entry.task.name: entry.dev.rows for entry in self.parts.prepared},
        )

    def go_on(self, snapshot: Snapshot) -> Finished:
        self.ranks.together(lambda: self._check(snapshot))
        newest = {"the newest checkpoint": str(snapshot.step)}
        self.ranks.check_same(lambda: self._hashes() | newest)
        with self.ranks.together(lambda: self._journal(snapshot.state["journal"])) as journal:
            driver = self.driver(journal)
            self._load_model(driver, snapshot)
            self._restore(driver, snapshot)
            return self._spend(driver)

    def _restore(self, driver: Driver, snapshot: Snapshot) -> None:
        try:
            driver.load_tensors(self.ranks.parts(snapshot.optimizer, driver.engine.model))
            driver.load_state_dict(snapshot.state["driver"])
            self.selected = TypeAdapter(Selected).validate_python(snapshot.state["selected"])
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            why = " ".join(str(error).split())[:200]
            raise UserError(f"{self.folder}: its checkpoint holds another state: {why}") from error

    def _check(self, snapshot: Snapshot) -> None:
        """Raise unless the checkpoint belongs to this configuration and these data."""
        check_config(self.folder, self.config, snapshot)
        kinds = {entry.task.kind.name for entry in self.parts.prepared}
        check_scores(self.folder, self.config, snapshot, kinds)
        for name, content in self.parts.data.items():
            if snapshot.state["data"].get(name) != content:
                raise UserError(
                    f"task {name}: its training or dev data are not those that this run was begun "
                    "with; put them back, or start another run"
                )
        if not (self.folder / JOURNAL).exists():
            raise UserError(
                f"{self.folder}: expected a {JOURNAL} beside the checkpoint, found none"
            )

    def _load_model(self, driver: Driver, snapshot: Snapshot) -> None:
        try:
            model = driver.engine.model
            model.load_state_dict(self.ranks.parts(snapshot.model, model))
        except RuntimeError as error:
            # torch's last line is about the first tensor that does not fit.
            why = str(error).splitlines()[-1].strip()
            raise UserError(f"{self.folder}: its checkpoint is of another model: {why}") from None

    def driver(self, journal: Journal) -> Driver:
        parts = self.parts
        engine = Engine(
            self.config, parts.prepared, parts.model, self.watchers, parts.cache, self.ranks
        )
        decider = build_decider(self.config, self._info)
        driver: Driver = self.config.family.load_driver()(engine, decider, journal)
        return driver

    def _spend(self, driver: Driver) -> Finished:
        try:
            with torch.random.fork_rng(), deterministic(self.config.deterministic):
                with listening() as stop:
                    while not (self._is_spent(driver) or self._stopped_early()):
                        before = self._counted(driver)
                        driver.advance()
                        self._after(driver, before, stop)
                    # Asked during the last evaluation: a study would go on to its next run.
                    self._stop_if_asked(driver, self.ranks.stop(stop.by))
                return self.ranks.agreed(lambda: self._finish(driver))
        except RunInterruptedError as error:
            raise type(error)(f"{error}; {self._how_to_go_on()}") from None
        except (OSError, SafetensorError) as error:
            raise RunInterruptedError(f"{self.folder}: {error}; {self._how_to_go_on()}") from error
        finally:
            driver.engine.loader.close()

    def _how_to_go_on(self) -> str:
        steps = checkpoints.steps_in(self.folder / CHECKPOINTS)
        if not steps:
            return "no checkpoint was written yet"
        return (
            f"the checkpoint of {self.config.family.unit[:-1]} {steps[-1]} is whole, "
            f"go on from it by `taskmix resume {self.folder}`"
        )

    def _stopped_early(self) -> bool:
        patience = self.config.evaluate.patience
        return patience is not None and self.selected.stale >= patience

    def _is_spent(self, driver: Driver) -> bool:
        return is_spent(self.config, driver.step, driver.engine.spent)

    def _counted(self, driver: Driver) -> int:
        return counted(self.config, driver.step, driver.engine.spent)

    def _after(self, driver: Driver, before: int, stop: Stop) -> None:
        """Evaluate and write a checkpoint when they are due."""
        config, now, last = self.config, self._counted(driver), self._is_spent(driver)
        self.watchers.spent(part_spent(config, driver.step, driver.engine.spent))
        asked = self.ranks.stop(stop.by)
        scored = last or is_due(config, config.evaluate_every, driver.step, before, now)
        due = is_due(config, config.checkpoint_every, driver.step, before, now)
        if scored or due or asked is not None or driver.step % RANK_CHECK_EVERY == 0:
            self.ranks.check_same(lambda: self._standing(driver))
        keep = self._evaluate(driver) if scored else False
        if last or keep or due or self._stopped_early() or asked is not None:
            self.checkpoint(driver)
        self._stop_if_asked(driver, asked)

    def _stop_if_asked(self, driver: Driver, asked: int | None) -> None:
        """Raise if a signal asked the run to stop; this step has a checkpoint."""
        if asked is not None:
            config = self.config
            of = f" of {config.length}" if config.budget.count == "steps" else ""
            raise StoppedError(
                f"stopped after {config.family.unit[:-1]} {driver.step}{of}, with a checkpoint; "
                f"continue it with `taskmix resume {self.folder}`",
                asked,
            )

    def _standing(self, driver: Driver) -> dict[str, str]:
        """Return hashes that must be equal on all ranks after every step."""
        after = f"after {self.config.family.unit[:-1]} {driver.step}"
        state = json.dumps(driver.state_dict()).encode()
        return {
            f"the decider's state {after}": hash_of(state),
            f"the model {after}": fingerprint(driver.engine.model),
        }

    def _evaluate(self, driver: Driver) -> bool:
        """Evaluate the run; return whether this model is now the one to keep."""
        scores, record = self._scored(driver)
        if beliefs := driver.diagnostics():
            driver.journal.append(Diagnostics(driver.step, beliefs))
        driver.journal.append(record)
        selected = self.selected
        assert record.objective is not None
        better = improves(record.objective, selected.best)
        if better:
            selected.best, selected.stale = record.objective, 0
        else:
            selected.stale += 1
        keep = better or self.config.evaluate.keep == "last"
        if keep:
            selected.step, selected.score, selected.scores = driver.step, record.score, scores
            selected.objective = record.objective
        self.watchers.evaluated(driver.step, scores, record.score, better)
        return keep

    def _scored(self, driver: Driver) -> tuple[dict[str, Scores], Evaluation]:
        began = time.perf_counter()
        engine = driver.engine
        scores = {name: engine.evaluate(name, engine.dev[name]) for name in engine.tasks}
        for name, task in scores.items():
            check_finite(task.loss, f"task {name}, step {driver.step}: the dev loss")
        objective = self.config.objective or driver.objective()
        by_task = {name: task.score for name, task in scores.items()}
        return scores, Evaluation(
            driver.step,
            "dev",
            mean(by_task),
            by_task,
            {name: task.loss for name, task in scores.items()},
            {name: task.metrics for name, task in scores.items()},
            objective_value(objective, scores),
            engine.spent.forward,
            engine.spent.backward,
            round(time.perf_counter() - began, 4),
        )

    def checkpoint(self, driver: Driver) -> None:
        snapshot = self.snapshot(driver)

        def save() -> None:
            checkpoints.save(self.folder / CHECKPOINTS, snapshot)
            self._prune()

        self.ranks.agreed(save)

    def snapshot(self, driver: Driver) -> Snapshot:
        driver.journal.sync()  # before its position is relied upon
        state = {
            "config": config_hash(self.config),
            "data": self.parts.data,
            "journal": driver.journal.position,
            "driver": driver.state_dict(),
            "selected": asdict(self.selected),
        }
        model = self.ranks.whole(driver.engine.model.state_dict())
        return Snapshot(driver.step, model, self.ranks.whole(driver.tensors()), state)

    def _prune(self) -> None:
        newest, selected = self.config.checkpoint.keep, self.selected.step
        checkpoints.prune(self.folder / CHECKPOINTS, newest, selected)

    def _finish(self, driver: Driver) -> Finished:
        """Write the model to keep, then the scores, whose file marks the run as finished."""
        selected = self.selected
        if selected.step is None or selected.scores is None:  # the last step is always scored
            raise UserError(f"{self.folder}: its checkpoint names no step whose model to keep")
        for folder in (self.folder, self.folder / CHECKPOINTS):
            sweep(folder)  # a process that was killed may have left something half written
        self._prune()
        kept = checkpoints.load(self.folder / CHECKPOINTS / f"step-{selected.step}")
        # A rank that has only a part of the model cannot save it; the checkpoint is whole.
        model = self.parts.new_model() if self.ranks.shards else self.parts.model.cpu()
        model.load_state_dict(kept.model)
        with whole_folder(self.folder / MODEL) as aside:
            self._save_model(model, aside)
        result = Finished(
            selected.step,
            selected.score,
            {name: self._beside_baseline(name, scores) for name, scores in selected.scores.items()},
            driver.engine.spent.forward,
            driver.engine.spent.backward,
            selected.objective,
        )
        write_whole(self.folder / SCORES, json.dumps(asdict(result), indent=2) + "\n")
        return result

    def _save_model(self, model: nn.Module, folder: Path) -> None:
        if isinstance(model, MultiTaskModel):
            saving.save(model, self.parts.tokenizer, self.config.model_spec, folder)
        else:
            tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
            save_file(tensors, folder / saving.WEIGHTS)

    def _beside_baseline(self, name: str, scores: Scores) -> Scores:
        [entry] = [entry for entry in self.parts.prepared if entry.task.name == name]
        return replace(scores, baseline=baseline(entry.task, entry.train, entry.dev))


def fingerprint(model: nn.Module) -> str:
    """Return a hash of the norms of a model's parameters."""
    # Of a parameter that ranks divide among them no two have the replicated part.
    replicated = [p.detach() for p in model.parameters() if type(p) is nn.Parameter]
    lengths = torch.stack([torch.linalg.vector_norm(p) for p in replicated])
    return hash_of(lengths.float().cpu().numpy().tobytes())


def check_config(folder: Path, config: RunConfig, snapshot: Snapshot) -> None:
    # Version 0.1 hashed its run.yaml as it wrote it.
    hashes = (config_hash(config), hash_of((folder / RUN).read_bytes()))
    if snapshot.state["config"] not in hashes:
        raise UserError(
            f"{folder}: its checkpoint is of another configuration than {folder / RUN}; put the "
            "file back as it was, or start another run"
        )
    if snapshot.state["config"] != hashes[0] and config.model.conditional is not None:
        raise UserError(
            f"{folder}: its conditioned model was begun by taskmix 0.1, with dropout in frozen "
            "layers; start the run again, or go on with that version"
        )


def check_scores(folder: Path, config: RunConfig, snapshot: Snapshot, kinds: Set[str]) -> None:
    """Raise if version 0.1 began the run and scored its regressions differently."""
    is_old = snapshot.state["config"] != config_hash(config)
    if is_old and config.decider["name"] == "mt_uncertainty" and "regress" in kinds:
        raise UserError(
            f"{folder}: its selector was begun by taskmix 0.1, with other scores for a regression; "
            "start the run again, or go on with that version"
        )


def config_hash(config: RunConfig) -> str:
    """Return a hash of the configuration and of the revisions that were found for it."""
    resolved = config.resolved or Resolved()
    revisions = resolved.model_dump(include={"encoders", "datasets"}, exclude_defaults=True)
    return hash_of(dump(asked_for(config)) + (json.dumps(revisions) if revisions else ""))


@contextmanager
def deterministic(enabled: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(before or enabled)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
