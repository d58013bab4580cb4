"""Trackers such as TensorBoard and W&B, fed from the journal of a run."""

import json
import logging
import math
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from taskmix.config import RunConfig
from taskmix.errors import RunInterruptedError, UserError
from taskmix.files import read_json, write_whole
from taskmix.journal import Diagnostics, Evaluation, Extended, Opening, Shares, Step, Tail
from taskmix.records import Record, UnitRecord
from taskmix.training.folder import JOURNAL
from taskmix.training.ranks import Ranks
from taskmix.training.watching import Watcher, Watchers

TRACKING = "tracking.json"
SECONDS = 1.0  # between two looks at the journal
log = logging.getLogger(__name__)


class Tracking(Watcher):
    """Sends each step of a run to trackers once, with all that the journal has on it.

    A killed run repeats the steps after its last checkpoint and writes the same records again, so
    the position of a record in the journal identifies it. `tracking.json` in the run folder holds
    the position up to which steps were sent, and the id under which trackers know the run.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self._tail = Tail(folder / JOURNAL)
        self._position = 0  # of the next record
        self._changes = 0  # openings and extensions up to it
        self._tasks: Sequence[str] = ()
        self._step, self._values = 0, dict[str, float]()  # not sent before the step is complete
        self._trackers: list[Any] = []
        self._state: dict[str, Any] = {}
        self._next_look = 0.0

    def spent(self, part: float) -> None:
        now = time.monotonic()
        if now >= self._next_look:
            self.send()
            self._next_look = now + SECONDS

    def send(self, *, last: bool = False) -> None:
        """Send the steps that trackers do not have yet; the last one only if it is complete."""
        self._state = self._state or self._saved()
        try:
            for record in self._tail.records():
                step = int(getattr(record, "step", self._step))
                if step > self._step:
                    self._send_step()
                    self._step = step
                self._note(record)
                self._position += 1
            if last:
                self._send_step()
        finally:
            self._save()

    def _note(self, record: Record) -> None:
        if isinstance(record, Opening):
            self._tasks = record.tasks
        if isinstance(record, (Opening, Extended)):
            self._changes += 1
            if self._changes > self._state["changes"]:  # new records take the place of old ones
                self._state["changes"] = self._changes
                self._state["records"] = min(self._state["records"], self._position)
        if self._position >= self._state["records"]:
            self._values |= values_of(record, self._tasks)

    def _send_step(self) -> None:
        if self._values:
            if not self._trackers:
                self._start_all()
            try:
                for tracker in self._trackers:
                    tracker.log(self._values, step=self._step)
            except Exception as error:  # of another library, such as for a server that is down
                why = " ".join(str(error).split()) or type(error).__name__
                raise RunInterruptedError(
                    f"track: step {self._step} was not sent ({why}); "
                    f"`taskmix resume {self.folder}` sends it"
                ) from error
            self._values = {}
        self._state["records"] = max(self._state["records"], self._position)

    def _start_all(self) -> None:
        # Saved around it: a process that is killed from here on leaves the id to the next one.
        self._save()
        self._trackers = [self._start(spec) for spec in self.config.track]
        self._save()

    def _save(self) -> None:
        write_whole(self.folder / TRACKING, json.dumps(self._state))

    def close(self) -> None:
        with redirect_stdout(sys.stderr):  # results alone are printed to stdout
            for tracker in self._trackers:
                try:
                    tracker.finish()
                except Exception as error:  # the run itself does not depend on it
                    log.warning("track: %s: %s", tracker.name, " ".join(str(error).split()))

    def _saved(self) -> dict[str, Any]:
        path = self.folder / TRACKING
        if not path.exists():
            return {"id": uuid.uuid4().hex[:12], "records": 0, "changes": 0}
        state = read_json(path, "the state of the trackers")
        for key, kind in (("id", str), ("records", int), ("changes", int)):
            if not isinstance(value := state.get(key), kind):
                raise UserError(
                    f"{path}: expected the state of the trackers, found {key}: {value!r:.60}; "
                    "without the file they begin a new run"
                )
        return state

    def _start(self, spec: Mapping[str, Any]) -> Any:
        """Start a tracker such that it continues the run that it knows."""
        from accelerate import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        name, run = spec["name"], self.config.name
        options: dict[str, Any] = {"run_name": run}
        if name == "tensorboard":
            # Events that a killed process wrote after its last note of them are replaced.
            options = {"run_name": name, "logging_dir": str(self.folder), "purge_step": self._step}
        elif name == "wandb":
            settings = self.config.model_dump(mode="json", exclude={"resolved", "track"})
            options = {"run_name": "taskmix", "name": run, "config": settings}
            options |= {"dir": str(self.folder), "id": self._state["id"], "resume": "allow"}
        elif name == "mlflow":
            options |= {"experiment_name": "taskmix", "run_id": self._state.get("mlflow")}
        elif name == "trackio":
            options = {"run_name": "taskmix", "name": f"{run}-{self._state['id']}"}
            options["resume"] = "allow"
        chosen = {key: value for key, value in spec.items() if key != "name"}
        try:
            PartialState()  # the loggers of accelerate need it
            tracker = LOGGER_TYPE_TO_CLASS[name](**options | chosen)
            tracker.main_process_only = False  # only the first rank has trackers
            with redirect_stdout(sys.stderr):
                tracker.start()
        except Exception as error:  # of another library, with a user's options
            raise UserError(f"track: {name}: {' '.join(str(error).split())}") from error
        if name == "mlflow":
            self._state["mlflow"] = tracker.tracker.info.run_id
        return tracker


def values_of(record: Record, tasks: Sequence[str]) -> dict[str, float]:
    """Return what is logged of a record, by name."""
    match record:
        case Step(task=task, loss=loss):
            return {} if loss is None else {f"loss/{task}": loss}
        case Shares(shares=shares):
            return {f"share/{task}": share for task, share in zip(tasks, shares, strict=True)}
        case UnitRecord():
            return {f"share/{task}": share for task, share in record.shares().items()}
        case Evaluation():
            return (
                {"score": record.score, "examples/forward": record.forward}
                | {"examples/backward": record.backward}
                | ({} if record.objective is None else {"objective": record.objective})
                | {f"score/{task}": score for task, score in record.scores.items()}
                | {f"dev_loss/{task}": loss for task, loss in record.losses.items()}
            )
        case Diagnostics(values=values):
            return dict(_numbers("decider", values))
    return {}


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the finite numbers of nested values, each with its path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(f"{name}/{key}", inner)
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            yield from _numbers(f"{name}/{place}", inner)
    elif isinstance(value, (int, float)) and math.isfinite(value):
        yield name, float(value)


def check_trackers(config: RunConfig) -> None:
    """Raise unless the libraries of the trackers are installed."""
    for spec in config.track:
        modules = ("accelerate", spec["name"])
        if any(find_spec(module) is None for module in modules):
            raise UserError(
                f"track: {spec['name']}: expected accelerate and {spec['name']}, found at least one"
                f" not installed; pip install accelerate {spec['name']}"
            )


@contextmanager
def tracked(
    config: RunConfig, folder: Path, watchers: Watchers, ranks: Ranks
) -> Iterator[Watchers]:
    """Yield the watchers together with the one that feeds the run's trackers, if there are any."""
    if not config.track or not ranks.writes:
        yield watchers
        return
    tracking = Tracking(config, folder)
    try:
        yield Watchers([watchers, tracking])
        tracking.send(last=True)
    finally:
        tracking.close()
