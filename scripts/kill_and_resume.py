"""Kill a training with SIGKILL again and again, resume it, and compare it with one left alone.

    python scripts/kill_and_resume.py --kills 25 --policies all

Kills hit at random times, and inside what would hurt most: between a step and its line in the
journal, between two tasks of an evaluation, with half a checkpoint on the disk, with half an old
one removed, with half a line in the journal, with the final model written and not yet in place,
inside a change of tasks. Lives also end by Ctrl-C, by SIGTERM and with a full disk. Weights,
journal (apart from times), optimiser and scores have to be the same bit for bit.

The run left alone has an interpreter of its own, so that nothing depends on the seed of hashes.
The others are forks of this process, which saves loading torch a hundred times.
"""

import argparse
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sklearn.datasets  # noqa: F401 (here, so that no fork has to load it)
import torch

from taskmix.config import RunConfig
from taskmix.errors import RunInterruptedError, StoppedError
from taskmix.journal import Journal, read, without_times
from taskmix.policies import POLICIES
from taskmix.records import UnitRecord
from taskmix.selection import SELECTORS
from taskmix.training import change, checkpoints, engine, session
from taskmix.training.change import CHANGE, change_tasks
from taskmix.training.folder import JOURNAL, RUN, SCORES, config_of
from taskmix.training.run import resume_run, run
from taskmix.training.watching import Watcher
from taskmix.weighting import WEIGHTINGS

TASKS = ("digits/left", "digits/right", "digits/larger")
OPTIONS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2},
    "annealed": {"epochs": 4},
    "fixed": {"probabilities": dict(zip(TASKS, (0.2, 0.3, 0.5), strict=True))},
    "cycle": {"ratio": dict(zip(TASKS, (2, 1, 3), strict=True))},
    "schedule": {
        "phases": [
            dict(zip(TASKS, (0.2, 0.3, 0.5), strict=True)),
            dict(zip(TASKS, (0.5, 0.5, 0.0), strict=True)),
        ]
    },
    "exp3s": {"eta": 0.1},
    "thompson": {"primary": "digits/larger", "batches": 3},
    "active": {"every": 4, "passes": 2, "examples": 20},
    "odm": {"warmup": 3},
    "ado": {"every": 12, "ignored": 0, "irreducible": -10},
    "aioli": {"every": 9, "repeats": 1, "stretch": 2, "examples": 20},
    "doge": {"every": 2, "examples": 20},
}
KINDS = {"policy": POLICIES, "selection": SELECTORS, "weighting": WEIGHTINGS}
DECIDERS = {cls.name: kind for kind, classes in KINDS.items() for cls in classes}
CHANGED = "change_of_tasks"
"""Not a policy: a run of Exp3.S whose tasks change behind its tenth step."""
DECIDERS[CHANGED] = "policy"
# By moment, the latest call at which a life ends: short lives, so that there are many.
MOMENTS = {
    "clock": 1,
    "step": 20,
    "evaluation": 12,
    "checkpoint": 8,
    "pruning": 4,
    "journal": 25,
    "model": 1,
    "scores": 1,
    "Ctrl-C": 20,
    "SIGTERM": 20,
    "full disk": 8,
}
CHANGE_MOMENTS = {"waiting checkpoint": 2, "decided": 1, "half changed": 1}


def config_for(name: str, steps: int) -> RunConfig:
    rounds = DECIDERS[name] == "weighting"  # each of them many optimiser steps
    target = {"target": "digits/larger", "fraction": 0.2} if rounds else {}
    decider = "exp3s" if name == CHANGED else name
    return RunConfig.model_validate(
        {
            "name": name,
            "tasks": list(TASKS[:2] if name == CHANGED else TASKS),
            DECIDERS[name]: {"name": decider, **target, **OPTIONS.get(decider, {})},
            "budget": {"rounds": max(2, steps // 10), "batch": 8}
            if rounds
            else {"steps": steps, "batch": 8},
            "optimizer": {"lr": 3e-3, "head_factor": 1},
            "evaluate": {"every": 2 if rounds else 5, "examples": 40},
            "checkpoint": {"every": 1 if rounds else 3},
        }
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def trap(original: Callable[..., Any], call: int, harm: Callable[..., Any]) -> Callable[..., Any]:
    """The original, but its call with this number is the last thing that happens."""
    left = call

    def sprung(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return original(*args, **kwargs)
        harm(*args, **kwargs)
        return die()

    return sprung


def half_a_file(tensors: dict[str, torch.Tensor], path: Path) -> None:
    SAVE_FILE(tensors, path)
    os.truncate(path, path.stat().st_size // 2)


def half_a_line(journal: Journal, lines: bytes) -> None:
    journal._file.write(lines[: len(lines) // 2])


def half_a_folder(path: Path) -> None:
    (path / checkpoints.MODEL).unlink()


def nothing(*_: object) -> None:
    pass


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def asked(number: int) -> Callable[..., Any]:
    """Do the step, and get a signal that asks to stop."""

    def step(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), number)
        return STEP(*args, **kwargs)

    return step


SAVE_FILE, WRITE = checkpoints.save_file, Journal._write
STEP = engine.Engine.update


def sprung_once(
    original: Callable[..., Any], call: int, instead: Callable[..., Any]
) -> Callable[..., Any]:
    """The original, but its call with this number is another."""
    left = call

    def sprung(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        return original(*args, **kwargs) if left else instead(*args, **kwargs)

    return sprung


def set_trap(moment: str, call: int) -> None:
    """Make this process end itself inside a call of what the moment names."""
    match moment:
        case "step":
            engine.Engine.update = trap(STEP, call, STEP)  # type: ignore[method-assign]
        case "evaluation":
            engine.evaluate = trap(engine.evaluate, call, nothing)
        case "checkpoint":
            checkpoints.save_file = trap(SAVE_FILE, call, half_a_file)
        case "pruning":
            removing = trap(shutil.rmtree, call, half_a_folder)
            checkpoints.shutil = SimpleNamespace(rmtree=removing)  # type: ignore[assignment]
        case "journal":
            Journal._write = trap(WRITE, call, half_a_line)  # type: ignore[method-assign]
        case "model":
            session.saving.save = trap(session.saving.save, call, session.saving.save)
        case "scores":
            session.write_whole = trap(session.write_whole, call, nothing)
        case "Ctrl-C":
            engine.Engine.update = sprung_once(STEP, call, asked(signal.SIGINT))  # type: ignore[method-assign]
        case "SIGTERM":
            engine.Engine.update = sprung_once(STEP, call, asked(signal.SIGTERM))  # type: ignore[method-assign]
        case "full disk":
            checkpoints.save_file = sprung_once(SAVE_FILE, call, no_room)
        case "waiting checkpoint":
            change.checkpoints.save = trap(change.checkpoints.save, call, nothing)
        case "decided":
            change.complete_change = trap(change.complete_change, call + 1, nothing)
        case "half changed":
            change.write_whole = trap(change.write_whole, call + 1, nothing)


def live(config: RunConfig, folder: Path, moment: str, call: int, after: float) -> bool:
    """One life of a run, in a process of its own; whether it ended before the run did."""
    child = os.fork()
    if child == 0:
        try:
            set_trap(moment, call)
            begin_or_go_on(config, folder)
        except (StoppedError, RunInterruptedError):
            os._exit(3)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if moment == "clock":
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1:
        raise SystemExit(f"{folder}: a life ended in an error")
    return os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 3


class HaltError(Exception):
    """Ends a run behind its tenth step."""


class Halt(Watcher):
    """A watcher that stops a run behind its tenth step."""

    def advanced(self, record: UnitRecord) -> None:
        """Stop behind the tenth step."""
        if record.step == 10:
            raise HaltError


def begin_or_go_on(config: RunConfig, folder: Path) -> None:
    if config.name != CHANGED:
        run(config, folder, resume=True)
        return
    there = (folder / RUN).exists()
    changed = there and (config_of(folder).tasks != config.tasks or (folder / CHANGE).exists())
    if not changed:
        try:
            run(config, folder, resume=True, watchers=[Halt()])
        except HaltError:
            change_tasks(folder, add=[TASKS[2]], drop=[TASKS[1]])
    resume_run(folder)


def lives(name: str, rng: random.Random, seconds: float) -> Iterator[tuple[str, int, float]]:
    """Moments to die at, without end: every kind equally often, at random calls and times."""
    moments = MOMENTS | (CHANGE_MOMENTS if name == CHANGED else {})
    if DECIDERS[name] == "weighting":  # its rounds take no steps of their own
        moments = {m: call for m, call in moments.items() if m not in ("Ctrl-C", "SIGTERM")}
    while True:
        for moment in rng.sample(list(moments), len(moments)):
            yield moment, rng.randint(1, moments[moment]), rng.uniform(0, seconds)


def everything(folder: Path) -> dict[str, Any]:
    """What has to be the same: all files but the report, the journal without its times."""
    seen: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (JOURNAL, ".lock", checkpoints.STATE)
    }
    seen[JOURNAL] = [without_times(record) for record in read(folder / JOURNAL)]
    return seen


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name in one | other if one.get(name) != other.get(name)]


def torment(config: RunConfig, alone: Path, seconds: float, kills: int, seed: int) -> Counter[str]:
    """Kill so many times; a run that got through is compared, and another one begun."""
    expected = everything(alone)
    rng = random.Random(f"{seed} {config.name}")
    counts: Counter[str] = Counter()
    moments = lives(config.name, rng, seconds)
    moment, call, after = next(moments)
    number = 0
    while counts.total() < kills:
        number, before = number + 1, counts.total()
        folder = alone.with_name(f"{config.name}-{number}")
        while counts.total() < kills and live(config, folder, moment, call, after):
            counts[moment] += 1
            moment, call, after = next(moments)
        if counts.total() == before and call == 1 and moment != "clock":
            raise SystemExit(f"{config.name}: the moment {moment!r} never comes")
        call = max(1, call // 2)  # the run was over before the moment came
        live(config, folder, "none", 0, 0.0)
        if different := differences(everything(folder), expected):
            raise SystemExit(f"{config.name}: {', '.join(different)} differ after {counts}")
        shutil.rmtree(folder)
    return counts


def leave_alone(names: list[str], steps: int, out: Path) -> None:
    """The runs that nobody kills, in a fresh interpreter."""
    command = [sys.executable, __file__, "--alone", "--policies", ",".join(names)]
    command += ["--steps", str(steps), "--out", str(out)]
    subprocess.run(command, check=True)


def names_of(text: str) -> list[str]:
    names = list(DECIDERS) if text == "all" else text.split(",")
    for name in names:
        if name not in DECIDERS:
            raise SystemExit(f"--policies: expected some of {', '.join(DECIDERS)}, found {name}")
    return names


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=25, help="of each policy")
    parser.add_argument(
        "--policies",
        default="all",
        help="or selectors or weightings: names with commas between, or all",
    )
    parser.add_argument("--steps", type=int, default=120, help="budget of a run")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--out", type=Path, help="where the runs go; a temporary folder if none")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    names = names_of(given.policies)
    if given.alone:
        for name in names:
            begin_or_go_on(config_for(name, given.steps), given.out / name)
        return
    with tempfile.TemporaryDirectory() as temporary:
        out = given.out or Path(temporary)
        leave_alone(names, given.steps, out)
        for name in names:
            alone = out / name
            began, ended = (alone / JOURNAL).stat().st_ctime, (alone / SCORES).stat().st_mtime
            seconds = (ended - began) / 4
            config = config_for(name, given.steps)
            counts = torment(config, alone, seconds, given.kills, given.seed)
            moments = ", ".join(f"{count} {moment}" for moment, count in sorted(counts.items()))
            print(f"{name}: the same after {counts.total()} kills ({moments})", flush=True)


if __name__ == "__main__":
    main()
