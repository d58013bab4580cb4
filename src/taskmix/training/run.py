"""Runs: start one, go on with one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from taskmix.config import RunConfig, dump, load, parse
from taskmix.errors import UserError
from taskmix.files import sweep, write_whole
from taskmix.tasks.task import Task
from taskmix.training import checkpoints
from taskmix.training.assembly import assemble
from taskmix.training.change import complete_change, extend
from taskmix.training.folder import (
    CHECKPOINTS,
    RUN,
    SCORES,
    Finished,
    check_free,
    config_of,
    finished,
    locked,
)
from taskmix.training.launch import launched
from taskmix.training.ranks import Ranks, joined
from taskmix.training.session import Session
from taskmix.training.stopping import stoppable
from taskmix.training.watching import Watcher, Watchers

Tasks = Sequence[Task] | Mapping[str, Task]
"""Tasks made in Python."""


def run(
    config: RunConfig | Mapping[str, Any] | str | Path,
    folder: Path | str,
    *,
    model: nn.Module | None = None,
    tasks: Tasks = (),
    resume: bool = False,
    cache: Path | None = None,
    watchers: Sequence[Watcher] = (),
) -> Finished:
    """Train as a configuration says, into a run folder.

    Args:
        config: tasks, model, decider, budget, seed: a `RunConfig`, the same as a mapping, or a run
            file. Where it is a mapping and names no tasks, they are those that are given.
        folder: the run folder.
        model: a module of one's own in place of the configuration's model. Its `forward` takes a
            `Batch` and gives outputs by task.
        tasks: tasks made in Python; the configuration calls them by their names.
        resume: go on with the run if the folder holds one of this configuration; otherwise a
            folder that holds a run is an error. Where torchrun started the processes again after
            one of them had died, they go on in any case.
        cache: the folder for what is computed once, encoded splits above all.
        watchers: are told of all that happens.
    """
    folder, given = Path(folder), by_name(tasks)
    asked = configured(config, given)
    with joined(asked) as ranks, stoppable(lambda: _stopped(folder)):
        there = ranks.agreed((folder / RUN).exists)
        # torchrun's count of restarts is that of one machine.
        if there and (resume or any(ranks.gathered(launched().restarts))):
            ranks.agreed(lambda: _check_same(asked, folder))
            return resume_run(folder, model=model, tasks=given, cache=cache, watchers=watchers)
        ranks.agreed(lambda: check_free(folder))
        told = Watchers(watchers if ranks.writes else ())
        parts = ranks.in_turn(lambda: assemble(asked, given, model, cache, told))
        ranks.check(parts.model)
        ranks.agreed(lambda: _make(folder))
        with _locked(folder, ranks):
            ranks.agreed(lambda: _begin(folder, parts.config))
            return Session(folder, parts, told, ranks).start()


def _begin(folder: Path, config: RunConfig) -> None:
    check_free(folder)  # another process may have been here meanwhile
    write_whole(folder / RUN, dump(config))


@contextmanager
def _locked(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Hold the folder's lock on the first rank, for all of them."""
    with ExitStack() as held:
        ranks.agreed(lambda: held.enter_context(locked(folder)))
        yield


def _stopped(folder: Path) -> str:
    """Return what to say of a run that was stopped before its first step or behind its last."""
    how = f"go on by `taskmix resume {folder}`" if (folder / RUN).exists() else "start it again"
    return f"{folder}: stopped outside of the run's steps; {how}"


def resume_run(
    folder: Path | str,
    *,
    model: nn.Module | None = None,
    tasks: Tasks = (),
    steps: int | None = None,
    cache: Path | None = None,
    watchers: Sequence[Watcher] = (),
) -> Finished:
    """Go on with a run from its last checkpoint, bit for bit as if it had never stopped.

    A run, also one that is finished, may be given a larger budget. Learning rates and intervals are
    from there on those of the larger budget.

    Args:
        folder: the run folder.
        model: the module of one's own that the run was begun with, if it was.
        tasks: the tasks made in Python that it was begun with.
        steps: the whole budget that it shall have, in steps or in rounds of a weighting; None
            leaves it as it is.
        cache: the folder for what is computed once, encoded splits above all.
        watchers: are told of all that happens.
    """
    folder = Path(folder)
    config = config_of(folder)  # a folder without a run is not locked, and not written to
    with joined(config) as ranks, stoppable(lambda: _stopped(folder)):
        if steps is not None:
            ranks.agreed(lambda: extend(folder, steps))
        told = Watchers(watchers if ranks.writes else ())
        with _locked(folder, ranks):
            ranks.agreed(lambda: complete_change(folder))
            if ranks.agreed((folder / SCORES).exists):
                return finished(folder)
            config = config_of(folder)
            parts = ranks.in_turn(lambda: assemble(config, by_name(tasks), model, cache, told))
            ranks.agreed(lambda: _sweep(folder))
            session = Session(folder, parts, told, ranks)
            snapshot = ranks.together(lambda: checkpoints.load_newest(folder / CHECKPOINTS))
            return session.start() if snapshot is None else session.go_on(snapshot)


def _sweep(folder: Path) -> None:
    for place in (folder, folder / CHECKPOINTS):
        sweep(place)


def by_name(tasks: Tasks) -> dict[str, Task]:
    """Return tasks made in Python by their names."""
    if isinstance(tasks, Mapping):
        return dict(tasks)
    return {task.name: task for task in tasks}


def configured(config: RunConfig | Mapping[str, Any] | str | Path, tasks: Tasks = ()) -> RunConfig:
    """Return the configuration that is meant: itself, a mapping, or a run file.

    A mapping that names no tasks means those that were made in Python.
    """
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, (str, Path)):
        return load(Path(config))
    given = by_name(tasks)
    return parse({"tasks": list(given), **config} if given else config, "config")


def _check_same(config: RunConfig, folder: Path) -> None:
    """Raise unless the folder's run has this configuration, apart from what the run found out."""
    there = config_of(folder)
    found_out: dict[str, Any] = {"given": None, "causal": config.model.causal}
    if config.model.revision is None:
        found_out["revision"] = None
    if config.model.encoder is None and there.model.causal:
        found_out["encoder"] = None
    changes = {
        "model": there.model.model_copy(update=found_out),
        "tasks": tuple(_without_revision(entry) for entry in there.tasks),
    }
    if dump(config) not in (dump(there), dump(there.model_copy(update=changes))):
        raise UserError(
            f"{folder}: there is a run of another configuration here; choose another folder"
        )


def _without_revision(entry: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(entry, str) or "hub" not in entry:
        return entry
    return {key: value for key, value in entry.items() if key != "revision"}


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: expected a folder to write to, {error.strerror}") from None
