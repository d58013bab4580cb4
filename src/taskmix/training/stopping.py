"""Signals that stop a run between two units of its budget, with a checkpoint."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from taskmix.errors import PREEMPTION_SIGNALS, StoppedError
from taskmix.training.launch import launched

SIGNALS = (signal.SIGINT, *PREEMPTION_SIGNALS)
Handler = Callable[[int, FrameType | None], None]


class Stop:
    """The signal that asked the process to stop, if there was one."""

    def __init__(self) -> None:
        self.by: int | None = None

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Note a signal, and say so; a second Ctrl-C stops at once."""
        # Not under torchrun: a terminal sends the first one to all processes, and torchrun sends
        # it to them again.
        if self.by is not None and number == signal.SIGINT and not launched().watched:
            raise KeyboardInterrupt
        if self.by is None and launched().rank == 0:
            # Not print, which may be what the signal interrupted.
            os.write(2, b"\ntaskmix: stopping after this step ...\n")
        self.by = number


@contextmanager
def listening() -> Iterator[Stop]:
    """Note Ctrl-C, SIGTERM and SIGUSR1 instead of their usual effect."""
    stop = Stop()
    with handled(SIGNALS, stop.ask):
        yield stop


@contextmanager
def stoppable(message: Callable[[], str]) -> Iterator[None]:
    """Stop at once on SIGTERM and SIGUSR1, with this message, outside of the steps of a run."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError(message(), number)

    with handled(PREEMPTION_SIGNALS, stop):
        yield


@contextmanager
def handled(numbers: Sequence[signal.Signals], handler: Handler) -> Iterator[None]:
    """Handle signals instead of their usual effect; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
