"""Kill a training with SIGKILL again and again, resume it, and compare it with one left alone.

    python scripts/kill_and_resume.py --kills 25 --policies all

A subject is a run of one policy, selector or weighting, a run whose tasks change, or a study.
Kills hit at random times, and inside what would hurt most: between a step and its line in the
journal, between two tasks of an evaluation, with half a checkpoint on the disk, with half an old
one removed, with half a line in the journal, with the final model written and not yet in place,
inside a change of tasks, between a trial's report and its pruning, between the end of a run and
its entry in the study. Lives also end by Ctrl-C, by SIGTERM and with a full disk. Every file but
the locks and Optuna's database has to be the same bit for bit, apart from times in the journal.

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

import optuna
import sklearn.datasets  # noqa: F401 (here, so that no fork has to load it)
import torch

from taskmix.config import RunConfig
from taskmix.errors import RunInterruptedError, StoppedError
from taskmix.journal import Journal, read, without_times
from taskmix.policies import POLICIES, Rewards
from taskmix.records import UnitRecord
from taskmix.search import GPHedgeSampler  # noqa: F401 (as above)
from taskmix.selection import SELECTORS
from taskmix.studies.autosem import AutosemSettings, autosem, pipeline
from taskmix.studies.compare import compare
from taskmix.training import change, checkpoints, engine, session
from taskmix.training.change import CHANGE, change_tasks
from taskmix.training.folder import JOURNAL, RUN, config_of
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
FAMILIES = {"policy": POLICIES, "selection": SELECTORS, "weighting": WEIGHTINGS}
DECIDERS = {
    cls.name: key
    for key, classes in FAMILIES.items()
    for cls in classes
    if Rewards() not in getattr(cls, "needs", ())  # of reinforcement learning, which runs elsewhere
}
CHANGED = "change_of_tasks"
"""A run of Exp3.S whose tasks change after its tenth step."""
STUDIES = ("compare", "autosem")
SUBJECTS = (*DECIDERS, CHANGED, *STUDIES)


def config_for(name: str, steps: int) -> RunConfig:
    family = DECIDERS.get(name, "policy")
    rounds = family == "weighting"  # each of them many optimiser steps
    target = {"target": "digits/larger", "fraction": 0.2} if rounds else {}
    decider = "exp3s" if name not in DECIDERS else name
    budget = {"rounds": max(2, steps // 10)} if rounds else {"steps": steps}
    return RunConfig.model_validate(
        {
            "name": name,
            "tasks": list(TASKS[:2] if name == CHANGED else TASKS),
            family: {"name": decider, **target, **OPTIONS.get(decider, {})},
            "budget": {**budget, "batch": 8},
            "optimizer": {"lr": 3e-3, "head_factor": 1},
            "evaluate": {"every": 2 if rounds else 5, "examples": 40},
            "checkpoint": {"every": 1 if rounds else 3},
        }
    )


def work(name: str, steps: int, folder: Path) -> None:
    """Start a subject, or resume it."""
    if name == "compare":
        compare(config_for(name, steps // 4), ["random", "exp3s"], [1, 2], folder)
    elif name == "autosem":
        settings = AutosemSettings(
            rounds=10, batches=2, trials=9, initial=5, prune=True, warm_start=True
        )
        config = config_for(name, steps // 4)
        autosem(config, TASKS[2], None, folder, settings=settings, seeds=[11, 12])
    elif name == CHANGED:
        run_with_change(config_for(name, steps), folder)
    else:
        run(config_for(name, steps), folder, resume=True)


class HaltError(Exception):
    pass


class Halt(Watcher):
    def advanced(self, record: UnitRecord) -> None:
        if record.step == 10:
            raise HaltError


def run_with_change(config: RunConfig, folder: Path) -> None:
    begun = (folder / RUN).exists()
    changed = begun and (config_of(folder).tasks != config.tasks or (folder / CHANGE).exists())
    if not changed:
        try:
            run(config, folder, resume=True, watchers=[Halt()])
        except HaltError:
            change_tasks(folder, add=[TASKS[2]], drop=[TASKS[1]])
    resume_run(folder)


SAVE_FILE, WRITE, STEP = checkpoints.save_file, Journal._write, engine.Engine.update
REPORT, TELL = optuna.Trial.report, optuna.Study.tell
PRUNING = SimpleNamespace(rmtree=shutil.rmtree)
checkpoints.shutil = PRUNING  # type: ignore[assignment]


def fatal(harm: Callable[..., Any]) -> Callable[..., Any]:
    """Do harm, and be killed."""

    def killed(*args: Any, **kwargs: Any) -> None:
        harm(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    return killed


def half_a_file(tensors: dict[str, torch.Tensor], path: Path) -> None:
    SAVE_FILE(tensors, path)
    os.truncate(path, path.stat().st_size // 2)


def half_a_line(journal: Journal, lines: bytes) -> None:
    journal._file.write(lines[: len(lines) // 2])


def half_a_folder(path: Path) -> None:
    (path / checkpoints.MODEL).unlink()


def nothing(*_: object, **__: object) -> None:
    pass


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def step_with(number: int) -> Callable[..., Any]:
    """Do the step, and get a signal that asks to stop."""

    def step(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), number)
        return STEP(*args, **kwargs)

    return step


# By moment: the function, what it does instead at one of its calls, and the first and the last
# such call. The last is early, so that lives are short and many.
TRAPS: dict[str, tuple[object, str, Callable[..., Any], int, int]] = {
    "step": (engine.Engine, "update", fatal(STEP), 1, 20),
    "evaluation": (engine, "evaluate", fatal(nothing), 1, 12),
    "checkpoint": (checkpoints, "save_file", fatal(half_a_file), 1, 8),
    "pruning": (PRUNING, "rmtree", fatal(half_a_folder), 1, 4),
    "journal": (Journal, "_write", fatal(half_a_line), 1, 25),
    "model": (session.saving, "save", fatal(session.saving.save), 1, 1),
    "scores": (session, "write_whole", fatal(nothing), 1, 1),
    "Ctrl-C": (engine.Engine, "update", step_with(signal.SIGINT), 1, 20),
    "SIGTERM": (engine.Engine, "update", step_with(signal.SIGTERM), 1, 20),
    "full disk": (checkpoints, "save_file", no_room, 1, 8),
}
CHANGE_TRAPS: dict[str, tuple[object, str, Callable[..., Any], int, int]] = {
    "waiting checkpoint": (change.checkpoints, "save", fatal(nothing), 1, 2),
    "decided": (change, "complete_change", fatal(nothing), 2, 2),
    "half changed": (change, "write_whole", fatal(nothing), 2, 2),
}
SEARCH_TRAPS: dict[str, tuple[object, str, Callable[..., Any], int, int]] = {
    "report of a trial": (optuna.Trial, "report", fatal(REPORT), 1, 8),
    "end of a trial": (optuna.Study, "tell", fatal(nothing), 1, 4),
    "entry of a trial": (optuna.Study, "tell", fatal(TELL), 1, 4),
    "result": (pipeline, "write_whole", fatal(nothing), 1, 1),
}
CLOCK = "clock"


def traps_of(name: str) -> dict[str, tuple[object, str, Callable[..., Any], int, int]]:
    if DECIDERS.get(name) == "weighting":  # its rounds take no steps of their own
        return {m: trap for m, trap in TRAPS.items() if m not in ("Ctrl-C", "SIGTERM")}
    return TRAPS | {CHANGED: CHANGE_TRAPS, "autosem": SEARCH_TRAPS}.get(name, {})


def set_trap(name: str, moment: str, call: int) -> None:
    """Make this process end in a call of the moment's function."""
    owner, attribute, instead, _, _ = traps_of(name)[moment]
    original, left = getattr(owner, attribute), call

    def sprung(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        return original(*args, **kwargs) if left else instead(*args, **kwargs)

    setattr(owner, attribute, sprung)


def live(name: str, steps: int, folder: Path, moment: str, call: int, after: float) -> bool:
    """Work in a process of its own that ends at a moment; return whether it ended early."""
    child = os.fork()
    if child == 0:
        try:
            if moment in traps_of(name):
                set_trap(name, moment, call)
            work(name, steps, folder)
        except (StoppedError, RunInterruptedError):
            os._exit(3)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if moment == CLOCK:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1:
        raise SystemExit(f"{folder}: a life ended in an error")
    return os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 3


def lives(name: str, rng: random.Random, seconds: float) -> Iterator[tuple[str, int, float]]:
    """Yield moments without end: every kind equally often, at random calls and times."""
    traps = traps_of(name)
    while True:
        for moment in rng.sample([CLOCK, *traps], len(traps) + 1):
            *_, first, last = traps.get(moment, (1, 1))
            yield moment, rng.randint(first, last), rng.uniform(0, seconds)


def contents(folder: Path) -> dict[str, Any]:
    """Return by path what has to be the same."""
    return {
        str(path.relative_to(folder)): _content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in (checkpoints.STATE, "study.db")
        and path.suffix != ".lock"
        and path.name != ".lock"
    }


def _content(path: Path) -> Any:
    if path.name == JOURNAL:
        return [without_times(record) for record in read(path)]
    return path.read_bytes()


def kill_and_compare(name: str, steps: int, alone: Path, kills: int, seed: int) -> Counter[str]:
    """Kill so many times; work that got through is compared, and begun anew."""
    expected = contents(alone)
    times = [path.stat().st_mtime for path in alone.rglob("*")]
    moments = lives(name, random.Random(f"{seed} {name}"), (max(times) - min(times)) / 4)
    counts: Counter[str] = Counter()
    moment, call, after = next(moments)
    number = 0
    while counts.total() < kills:
        number, before = number + 1, counts.total()
        folder = alone.with_name(f"{name}-{number}")
        while counts.total() < kills and live(name, steps, folder, moment, call, after):
            counts[moment] += 1
            moment, call, after = next(moments)
        if moment != CLOCK:  # the work was over before the moment came
            first = traps_of(name)[moment][3]
            if counts.total() == before and call == first:
                raise SystemExit(f"{name}: the moment {moment!r} never comes")
            call = max(first, call // 2)
        live(name, steps, folder, "none", 0, 0.0)
        found = contents(folder)
        if different := [p for p in expected | found if expected.get(p) != found.get(p)]:
            raise SystemExit(f"{name}: {', '.join(different)} differ after {counts}")
        shutil.rmtree(folder)
    return counts


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=25, help="of each subject")
    parser.add_argument("--policies", default="all", help=f"all, or some of: {', '.join(SUBJECTS)}")
    parser.add_argument("--steps", type=int, default=120, help="budget of a run")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--out", type=Path, help="where the runs go; a temporary folder if none")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    names = list(SUBJECTS) if options.policies == "all" else options.policies.split(",")
    if unknown := set(names) - set(SUBJECTS):
        raise SystemExit(f"--policies: expected some of {', '.join(SUBJECTS)}, found {unknown}")
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        for name in names:
            if options.alone:
                work(name, options.steps, out / name)
                continue
            command = [sys.executable, __file__, "--alone", "--policies", name]
            command += ["--steps", str(options.steps), "--out", str(out)]
            subprocess.run(command, check=True)
            counts = kill_and_compare(name, options.steps, out / name, options.kills, options.seed)
            moments = ", ".join(f"{count} {moment}" for moment, count in sorted(counts.items()))
            print(f"{name}: the same after {counts.total()} kills ({moments})", flush=True)


if __name__ == "__main__":
    main()
