"""Going on with other tasks, or with a larger budget."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from taskmix.config import RunConfig, changed, dump
from taskmix.errors import UserError, unknown
from taskmix.files import write_whole
from taskmix.journal import Extended, Journal, line_of
from taskmix.training import checkpoints
from taskmix.training.assembly import assemble
from taskmix.training.budget import is_spent
from taskmix.training.checkpoints import Snapshot
from taskmix.training.engine import Spent
from taskmix.training.folder import CHECKPOINTS, JOURNAL, RUN, SCORES, config_of, locked
from taskmix.training.prepare import Given
from taskmix.training.session import Session, check_config, digest
from taskmix.training.watching import Watchers

CHANGE = "change.json"
"""While it is there, a change is decided and not yet completed."""
NEXT = "next"
"""Where the checkpoint of a change waits, below the checkpoints."""


def change_tasks(
    folder: Path | str,
    *,
    add: Sequence[str | dict[str, Any]] = (),
    drop: Sequence[str] = (),
    tasks: Given | None = None,
    cache: Path | None = None,
    watchers: Watchers | None = None,
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
        watchers: are told of the reading.
    """
    folder, told = Path(folder), watchers or Watchers()
    config_of(folder)
    with locked(folder):
        complete_change(folder)
        config = config_of(folder)
        snapshot = checkpoints.load_newest(folder / CHECKPOINTS)
        can = config.family.load_driver().can_change_tasks
        if not can or snapshot is None or (folder / SCORES).exists():
            raise UserError(
                f"{folder}: tasks can be changed in an unfinished run of a policy that has a "
                "checkpoint, and this is none"
            )
        check_config(folder, config, snapshot)
        if is_spent(config, snapshot.step, Spent(**snapshot.state["driver"]["engine"]["spent"])):
            raise UserError(
                f"{folder}: all {config.length} {config.unit} of its budget are spent; "
                "other tasks need more, given with --steps"
            )
        parts = assemble(_with_tasks(config, add, drop), tasks, None, cache, told)
        session = Session(folder, parts, told)
        with Journal.resume(folder / JOURNAL, snapshot.state["journal"]) as journal:
            journal.append(session.opening())
            driver = session.driver(journal)
            own = driver.engine.model.state_dict()
            shared = {name: x for name, x in snapshot.model.items() if name in own}
            driver.engine.model.load_state_dict(own | shared)
            driver.adopt(snapshot.state["driver"])
            driver.load_tensors(snapshot.optimizer)
            changed_snapshot = session.snapshot(driver)
            driver.engine.loader.close()
        _decide(folder, changed_snapshot, run=dump(parts.config))


def extend(folder: Path | str, length: int) -> None:
    """Give a run, finished or not, a larger budget; `resume` then goes on with it.

    It goes on from its last checkpoint, under the learning rates, phases and intervals of the
    larger budget; what was done under those of the smaller one stays as it was.

    Args:
        folder: the run folder.
        length: the whole budget in steps, or in rounds of a weighting.
    """
    folder = Path(folder)
    config_of(folder)
    with locked(folder):
        complete_change(folder)
        config = config_of(folder)
        unit = config.unit
        if length <= config.length:
            raise UserError(
                f"{folder}: expected more than the {config.length} {unit} of its budget, "
                f"found {length}"
            )
        snapshot = checkpoints.load_newest(folder / CHECKPOINTS)
        if snapshot is None:
            raise UserError(
                f"{folder}: expected a run with a checkpoint, found none; start another run"
            )
        check_config(folder, config, snapshot)
        budget = config.budget.model_dump(exclude_none=True) | {unit: length}
        longer = changed(config, {"budget": budget}, "budget")
        line = line_of(
            Extended(snapshot.step, longer.budget.model_dump(exclude={"count"}, exclude_none=True))
        )
        position = snapshot.state["journal"]
        state = snapshot.state | {
            "config": digest(longer),
            "driver": _under_a_larger_budget(snapshot.state["driver"]),
            "journal": position + len(line),
            "selected": snapshot.state["selected"] | {"stale": 0},
        }
        _decide(
            folder,
            replace(snapshot, state=state),
            run=dump(longer),
            journal=position,
            line=line.decode(),
        )


def _under_a_larger_budget(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a driver, or of a policy, whose next distribution is not to be checked.

    A policy that goes by the budget, `annealed` say, draws from another one now. What was saved
    counts for draw 0 from here on, which no draw is.
    """
    changed_state = dict(state)
    if "policy" in state:  # of a driver, or of a policy around another
        changed_state["policy"] = _under_a_larger_budget(state["policy"])
    if "next" in state:
        changed_state["next"] = {**state["next"], "draw": 0}
    return changed_state


def _decide(folder: Path, snapshot: Snapshot, **change: Any) -> None:
    """Write down what a change comes to, and complete it."""
    waiting = folder / CHECKPOINTS / NEXT
    shutil.rmtree(waiting, ignore_errors=True)
    checkpoints.save(waiting, snapshot)
    # From here on the change is decided: whoever opens the run next completes it.
    write_whole(folder / CHANGE, json.dumps({"step": snapshot.step, **change}))
    complete_change(folder)


def complete_change(folder: Path) -> None:
    """Complete a change that was decided, if there is one; safe to do twice."""
    if not (folder / CHANGE).exists():
        return
    change = _change(folder / CHANGE)
    place = folder / CHECKPOINTS / f"step-{change['step']}"
    waiting = folder / CHECKPOINTS / NEXT / place.name
    if waiting.exists():
        shutil.rmtree(place, ignore_errors=True)
        waiting.rename(place)
    shutil.rmtree(folder / CHECKPOINTS / NEXT, ignore_errors=True)
    write_whole(folder / RUN, change["run"])
    if "line" in change:
        _put(folder / JOURNAL, change["journal"], change["line"].encode())
        (folder / SCORES).unlink(missing_ok=True)
    (folder / CHANGE).unlink()


def _change(path: Path) -> dict[str, Any]:
    """Return what a change comes to, as it was written down."""
    try:
        change = json.loads(path.read_text())
        return {**change, "step": int(change["step"]), "run": str(change["run"])}
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise UserError(f"{path}: expected a change of the run, found {error!r}") from None


def _put(journal: Path, position: int, line: bytes) -> None:
    """Let a line be the last of a journal, at a position."""
    with journal.open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


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
