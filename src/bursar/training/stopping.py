"""Stopping a run between two units of its budget, with a checkpoint."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Remembers that somebody asked the process to stop."""

    def __init__(self) -> None:
        self.by: int | None = None

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; the second Ctrl-C does not wait."""
        if self.by is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.by = number


@contextmanager
def listening() -> Iterator[Stop]:
    """Note Ctrl-C and SIGTERM in place of their usual effect; only the main thread can."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.ask) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
