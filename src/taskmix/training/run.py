"""Start and resume runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from taskmix.config import RunConfig, dump, load, parse
from taskmix.errors import UserError
from taskmix.files import sweep, write_whole
from taskmix.training import checkpoints
from taskmix.training.assembly import assemble
from taskmix.training.change import complete_change, extend
from taskmix.training.folder import (
    CHECKPOINTS,
    RUN,
    SCORES,
    Finished,
    check_no_run,
    check_same,
    config_of,
    config_to_resume,
    finished,
    locked,
)
from taskmix.training.launch import launched
from taskmix.training.prepare import Tasks, by_name, with_steps
from taskmix.training.ranks import Ranks, joined
from taskmix.training.session import Session
from taskmix.training.stopping import stoppable
from taskmix.training.tracking import tracked
from taskmix.training.watching import Watcher, Watchers


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
        config: a `RunConfig`, a mapping with the same keys, or the path of a run file. A mapping
            without tasks uses all of `tasks`.
        folder: the run folder.
        model: a module to train in place of the configuration's model. Its `forward` takes a
            `Batch` and returns outputs by task.
        tasks: tasks made in Python; the configuration refers to them by name.
        resume: resume the run in the folder, if there is one; it must have this configuration. If
            False, a folder that holds a run is an error, unless torchrun has restarted the run.
        cache: the cache folder, for encoded splits above all.
        watchers: the objects that are notified of the progress.
    """
    folder, python_tasks = Path(folder), by_name(tasks)
    run_config = configured(config, python_tasks)
    with joined(run_config) as ranks, stoppable(lambda: _stopped(folder)):
        exists = ranks.agreed((folder / RUN).exists)
        # torchrun's count of restarts is that of one machine.
        if exists and (resume or any(ranks.gathered(launched().restarts))):
            ranks.agreed(lambda: check_same(folder, run_config))
            return resume_run(
                folder, model=model, tasks=python_tasks, cache=cache, watchers=watchers
            )
        ranks.agreed(lambda: check_no_run(folder, run_config))
        watching = Watchers(watchers if ranks.writes else ())
        parts = ranks.in_turn(lambda: assemble(run_config, python_tasks, model, cache, watching))
        ranks.check(parts.model)
        ranks.agreed(lambda: _make_folder(folder))
        with _locked(folder, ranks):
            ranks.agreed(lambda: _begin(folder, parts.config))
            with tracked(parts.config, folder, watching, ranks) as all_watchers:
                return Session(folder, parts, all_watchers, ranks).start()


def _begin(folder: Path, config: RunConfig) -> None:
    check_no_run(folder, config)  # another process may have been here meanwhile
    write_whole(folder / RUN, dump(config))


@contextmanager
def _locked(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Hold the folder's lock on the first rank, for all ranks."""
    with ExitStack() as held:
        ranks.agreed(lambda: held.enter_context(locked(folder)))
        yield


def _stopped(folder: Path) -> str:
    """Return the message for a run that was stopped before its first or after its last step."""
    how = (
        f"continue it with `taskmix resume {folder}`"
        if (folder / RUN).exists()
        else "start it again"
    )
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
    """Resume a run from its last checkpoint, bit for bit as if it had never stopped.

    With `steps`, any run, finished or not, can be extended: from the checkpoint on, it has the
    learning rates and intervals of the larger budget.

    Args:
        folder: the run folder.
        model: the module that was passed to `run`, if any.
        tasks: the tasks made in Python that were passed to `run`.
        steps: the new total budget, in steps or in rounds of a weighting; unchanged if None.
        cache: the cache folder, for encoded splits above all.
        watchers: the objects that are notified of the progress.
    """
    folder = Path(folder)
    config = config_to_resume(folder)  # a folder without a run is not locked, and not written to
    with joined(config) as ranks, stoppable(lambda: _stopped(folder)):
        if steps is not None:
            ranks.agreed(lambda: extend(folder, steps))
        watching = Watchers(watchers if ranks.writes else ())
        with _locked(folder, ranks):
            ranks.agreed(lambda: complete_change(folder))
            config = config_of(folder)
            if ranks.agreed((folder / SCORES).exists):
                with tracked(config, folder, watching, ranks):  # which may lack the last steps
                    return finished(folder)
            parts = ranks.in_turn(lambda: assemble(config, by_name(tasks), model, cache, watching))
            ranks.agreed(lambda: sweep(folder, folder / CHECKPOINTS))
            snapshot = ranks.together(lambda: checkpoints.load_newest(folder / CHECKPOINTS))
            with tracked(config, folder, watching, ranks) as all_watchers:
                session = Session(folder, parts, all_watchers, ranks)
                return session.start() if snapshot is None else session.go_on(snapshot)


def configured(config: RunConfig | Mapping[str, Any] | str | Path, tasks: Tasks = ()) -> RunConfig:
    """Return the configuration, with the steps of its epochs.

    A mapping without tasks gets the tasks made in Python.
    """
    python_tasks = by_name(tasks)
    if isinstance(config, (str, Path)):
        config = load(Path(config))
    elif not isinstance(config, RunConfig):
        names = list(python_tasks)
        config = parse({"tasks": names, **config} if names else config, "config")
    return with_steps(config, python_tasks)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: expected a folder to write to, {error.strerror}") from None
