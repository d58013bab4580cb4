"""The workers of a study: how each starts its runs, and processes that work beside this one."""

import logging
import multiprocessing
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import yaml

from taskmix.config import changed_keys, read_yaml
from taskmix.errors import StoppedError, TaskmixError, UserError
from taskmix.files import write_whole
from taskmix.training.folder import CHECKPOINTS
from taskmix.training.stopping import stoppable

if TYPE_CHECKING:
    from torch import nn

    from taskmix.config import RunConfig
    from taskmix.tasks.task import Task
    from taskmix.training.folder import Finished
    from taskmix.training.watching import Watcher

_THREADS = "OMP_NUM_THREADS"
_LOGGER = logging.getLogger("taskmix")


@dataclass(frozen=True)
class Runner:
    """Starts and resumes the runs of a study; its fields are the arguments of `compare`."""

    model: "Callable[[], nn.Module] | None" = None
    tasks: "Sequence[Task] | Mapping[str, Task]" = ()
    cache: Path | None = None
    watch: "Callable[[RunConfig, str], Watcher] | None" = None
    keep_checkpoints: bool = False

    def run(
        self, config: "RunConfig", folder: Path, title: str, watchers: "Sequence[Watcher]" = ()
    ) -> "Finished":
        """Train, resume the run in the folder, or return the scores of a finished one."""
        from taskmix.training.run import configured, run

        config = configured(config, self.tasks)
        view = [self.watch(config, title)] if self.watch is not None else []
        try:
            finished = run(
                config,
                folder,
                model=self.model() if self.model is not None else None,
                tasks=self.tasks,
                resume=True,
                cache=self.cache,
                watchers=[*view, *watchers],
            )
        except StoppedError as error:
            message = f"{title}: {error.reason}; the same command goes on with the study"
            raise StoppedError(message, error.signal) from None
        if not self.keep_checkpoints:  # with the optimiser's state, they would fill the disk
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return finished


def check_same_settings(
    where: str, known: Mapping[str, Any], settings: Mapping[str, Any], remedy: str
) -> None:
    """Raise if a study would go on with other settings than it was begun with."""
    changes = list(changed_keys({key: known.get(key) for key in settings}, settings))
    if changes:
        raise UserError(f"{where}: begun with other settings: {', '.join(changes)}; {remedy}")


def keep_settings(path: Path, settings: Any) -> None:
    """Keep a study's settings, a dataclass, in its folder; raise if it was begun with others."""
    if path.exists():
        known = asdict(type(settings)()) | read_yaml(path)  # older files lack newer settings
        check_same_settings(str(path), known, asdict(settings), "choose another folder")
    else:
        write_whole(path, yaml.safe_dump(asdict(settings), sort_keys=False))


@contextmanager
def helpers(count: int, work: Callable[..., object], *arguments: Any) -> Iterator[None]:
    """Start processes that do the same work as the code inside the context.

    Their results are not collected: the code inside the context waits for their runs, finishes the
    ones that they leave, and so meets any error that stopped them. Their warnings are logged by
    this process. Leaving the context with an error stops them, with a checkpoint each. Work and
    arguments have to be picklable.
    """
    processes: list[SpawnProcess] = []
    readers: list[Thread] = []
    # Outside of runs, too, a signal has to stop the helpers; a run handles signals itself.
    with stoppable(lambda: "stopped; the same command goes on"), _divided_cores(count + 1):
        try:
            # One by one, so that those that were started are stopped if one cannot be.
            for number in range(count):
                process, receiver = _started(number, work, arguments)
                processes.append(process)
                readers.append(Thread(target=_log_records, args=(receiver,), daemon=True))
                readers[-1].start()
            yield
        except BaseException:
            for process in processes:
                process.terminate()
            raise
        finally:
            for process in processes:
                process.join()
            for reader in readers:
                reader.join()


@contextmanager
def _divided_cores(workers: int) -> Iterator[None]:
    """Divide the cores among the workers, unless the user has set the number of threads."""
    if workers == 1 or _THREADS in os.environ:
        yield
        return
    import torch

    before, threads = torch.get_num_threads(), max(1, (os.cpu_count() or 1) // workers)
    os.environ[_THREADS] = str(threads)  # for the helpers
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        del os.environ[_THREADS]
        torch.set_num_threads(before)


def _started(
    number: int, work: Callable[..., object], arguments: Sequence[Any]
) -> tuple[SpawnProcess, Connection]:
    """Start a process; return it, and the end of a pipe that receives its log records."""
    # Spawned, because a forked process inherits torch's threads as locks that nobody releases.
    context = multiprocessing.get_context("spawn")
    # A pipe for each, because a process that is killed would leave the lock of a shared queue.
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_call_work, args=(sender, work, *arguments), name=f"worker-{number + 2}"
    )
    try:
        process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UserError(
            "workers: expected tasks and a model that can be sent to another process: functions"
            f" and classes of a module, found {error}"
        ) from None
    finally:
        sender.close()  # the process has its own copy, whose end is that of the records
    return process, receiver


def _log_records(receiver: Connection) -> None:
    """Log the records of another process until it ends."""
    with receiver, suppress(EOFError, OSError):
        while True:
            _LOGGER.handle(receiver.recv())


class _PipeHandler(logging.Handler):
    """Sends log records to the process that started this one."""

    def __init__(self, sender: Connection) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        # As text, because the arguments of a record may not be picklable.
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        with suppress(OSError):  # that process was killed
            self._sender.send(record)


def _call_work(sender: Connection, work: Callable[..., object], *arguments: Any) -> None:
    _LOGGER.addHandler(_PipeHandler(sender))
    _LOGGER.propagate = False
    try:
        work(*arguments)
    except TaskmixError as error:
        name = multiprocessing.current_process().name
        print(f"taskmix: {name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
