"""Changes of a run: other tasks, or a larger budget."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from taskmix.config import RunConfig, changed, dump, parse, read_value
from taskmix.errors import UserError, explain, unknown
from taskmix.files import write_whole
from taskmix.journal import MAX_STEPS, Extended, Journal, line_of
from taskmix.training import checkpoints
from taskmix.training.assembly import assemble
from taskmix.training.budget import Spent, is_spent
from taskmix.training.checkpoints import Snapshot
from taskmix.training.folder import (
    CHECKPOINTS,
    JOURNAL,
    RUN,
    SCORES,
    config_of,
    config_to_resume,
    locked,
)
from taskmix.training.policy import PolicyDriver
from taskmix.training.prepare import PythonTasks, without_epochs
from taskmix.training.session import Session, check_config, config_hash
from taskmix.training.watching import Watchers

CHANGE = "change.json"  # exists between the commit of a change and its completion
CHANGED_CHECKPOINTS = "next"  # the folder of the changed checkpoint until then


def change_tasks(
    folder: Path | str,
    *,
    add: Sequence[str | dict[str, Any]] = (),
    drop: Sequence[str] = (),
    tasks: PythonTasks | None = None,
    cache: Path | None = None,
    watchers: Watchers | None = None,
) -> None:
    """Give an unfinished run other tasks, which `resume` continues with; the policy starts anew."""
    folder, watchers = Path(folder), watchers or Watchers()
    with _opened(folder) as (config, snapshot):
        if config.family.key != "policy" or snapshot is None or (folder / SCORES).exists():
            raise UserError(
                f"{folder}: tasks can be changed in an unfinished run of a policy that has a "
                "checkpoint, and this is none"
            )
        if is_spent(config, snapshot.step, Spent(**snapshot.state["driver"]["engine"]["spent"])):
            raise UserError(
                f"{folder}: all {config.length} {config.unit} of its budget are spent; "
                "other tasks need more, given with --steps"
            )
        # The steps of its epochs were counted from the tasks that it had.
        config = without_epochs(config)
        parts = assemble(_with_tasks(config, add, drop), tasks, None, cache, watchers)
        session = Session(folder, parts, watchers)
        with Journal.resume(folder / JOURNAL, snapshot.state["journal"]) as journal:
            journal.append(session.opening())
            driver = session.driver(journal)
            assert isinstance(driver, PolicyDriver)
            weights = driver.engine.model.state_dict()
            shared = {name: x for name, x in snapshot.model.items() if name in weights}
            driver.engine.model.load_state_dict(weights | shared)
            driver.adopt(snapshot.state["driver"])
            driver.load_tensors(snapshot.optimizer)
            changed_snapshot = session.snapshot(driver)
            driver.engine.loader.close()
        _commit(folder, changed_snapshot, run=dump(parts.config))


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[RunConfig, Snapshot | None]]:
    """Lock a run, complete a change of it, and give its configuration and newest checkpoint."""
    config_to_resume(folder)  # a folder without a run is not locked, and not written to
    with locked(folder):
        complete_change(folder)
        config = config_of(folder)
        snapshot = checkpoints.load_newest(folder / CHECKPOINTS)
        if snapshot is not None:
            check_config(folder, config, snapshot)
        yield config, snapshot


def extend(folder: Path | str, length: int) -> None:
    """Give a run, finished or not, a larger budget, with its learning rates and intervals."""
    folder = Path(folder)
    with _opened(folder) as (config, snapshot):
        unit = config.unit
        if length <= config.length:
            raise UserError(
                f"{folder}: expected more than the {config.length} {unit} of its budget, "
                f"found {length}"
            )
        if snapshot is None:
            raise UserError(
                f"{folder}: expected a run with a checkpoint, found none; start another run"
            )
        budget = config.budget.model_dump(exclude={"epochs"}, exclude_none=True) | {unit: length}
        longer = changed(config, {"budget": budget}, "budget")
        line = line_of(
            Extended(snapshot.step, longer.budget.model_dump(exclude={"count"}, exclude_none=True))
        )
        position = snapshot.state["journal"]
        state = snapshot.state | {
            "config": config_hash(longer),
            "driver": _without_next_draw(snapshot.state["driver"]),
            "journal": position + len(line),
            "selected": snapshot.state["selected"] | {"stale": 0},
        }
        change = {"run": dump(longer), "journal": position, "line": line.decode()}
        _commit(folder, replace(snapshot, state=state), **change)


def _without_next_draw(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a driver or policy whose next distribution is not to be checked.

    A policy that depends on the budget, such as `annealed`, draws from another distribution now.
    The saved one is moved to draw 0, which does not exist.
    """
    changed_state = dict(state)
    if "policy" in state:  # of a driver, or of a policy around another
        changed_state["policy"] = _without_next_draw(state["policy"])
    if "next" in state:
        changed_state["next"] = {**state["next"], "draw": 0}
    return changed_state


def _commit(folder: Path, snapshot: Snapshot, **change: Any) -> None:
    waiting = folder / CHECKPOINTS / CHANGED_CHECKPOINTS
    shutil.rmtree(waiting, ignore_errors=True)
    checkpoints.save(waiting, snapshot)
    # From here on, whoever opens the run next completes the change.
    write_whole(folder / CHANGE, json.dumps({"step": snapshot.step, **change}))
    complete_change(folder)


def complete_change(folder: Path) -> None:
    """Complete a committed change, if there is one; safe to do twice."""
    if not (folder / CHANGE).exists():
        return
    change = _read_change(folder)
    place = folder / CHECKPOINTS / f"step-{change.step}"
    waiting = folder / CHECKPOINTS / CHANGED_CHECKPOINTS / place.name
    if waiting.exists():
        shutil.rmtree(place, ignore_errors=True)
        waiting.rename(place)
    shutil.rmtree(folder / CHECKPOINTS / CHANGED_CHECKPOINTS, ignore_errors=True)
    write_whole(folder / RUN, change.run)
    if change.line is not None:
        _replace_end(folder / JOURNAL, change.journal, change.line.encode())
        (folder / SCORES).unlink(missing_ok=True)
    (folder / CHANGE).unlink()


@dataclass(frozen=True)
class _Change:
    """The content of `change.json`."""

    step: Annotated[int, Field(ge=0, lt=MAX_STEPS)]
    run: str
    journal: Annotated[int, Field(ge=0)] = 0
    line: str | None = None  # takes the place of the journal's end from the byte `journal` on


def _read_change(folder: Path) -> _Change:
    path = folder / CHANGE
    try:
        change = TypeAdapter(_Change).validate_json(path.read_bytes(), strict=True)
    except ValidationError as error:
        raise UserError(f"{path}: expected a change of the run, found {explain(error)}") from None
    values = read_value(change.run, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a change of the run, found no run file in it")
    parse(values, str(path))
    if change.line is not None and change.journal > (folder / JOURNAL).stat().st_size:
        raise UserError(f"{path}: expected a change of the run, found one of a longer journal")
    return change


def _replace_end(journal: Path, position: int, line: bytes) -> None:
    with journal.open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _with_tasks(
    config: RunConfig, add: Sequence[str | dict[str, Any]], drop: Sequence[str]
) -> RunConfig:
    entries = {entry.name: entry for entry in config.tasks}
    for name in drop:
        if name not in entries:
            raise unknown("task", name, entries, "drop")
        del entries[name]
    return changed(config, {"tasks": [*entries.values(), *add]}, "tasks")
