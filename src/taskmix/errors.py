"""What can go wrong, sorted by whose fault it is.

A user's mistake is one sentence and exit code 2. A fault of the world (a full disk, a loss that is
not a number) leaves the run resumable and says how; exit code 1. A cluster that takes the machine
away gets exit code 75, which means that the same run shall be resumed. Anything else is our bug and
gets a traceback.
"""

import signal
from collections.abc import Iterable
from difflib import get_close_matches

RESUME_ME = 75
"""The exit code of a run that was preempted: a checkpoint is there, resume it (EX_TEMPFAIL)."""
PREEMPTING = (signal.SIGTERM, signal.SIGUSR1)
"""Signals by which clusters announce that a process has to end."""


class TaskmixError(Exception):
    """Anything that taskmix raises on purpose; its message is a sentence for the user."""

    exit_code = 1


class UserError(TaskmixError):
    """A mistake in the input: says what was found, where, and what was expected."""

    exit_code = 2


class RunInterruptedError(TaskmixError):
    """The world got in the way; the run folder is whole and the message says how to go on."""


class StoppedError(TaskmixError):
    """The user, or a cluster, asked the run to stop; a checkpoint was written.

    The exit code is 75 after SIGTERM and SIGUSR1, which mean that a cluster wants the machine back,
    and 130 after Ctrl-C.

    Args:
        message: the sentence for the user.
        signal: the signal that asked.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = RESUME_ME if signal in PREEMPTING else 128 + signal


def unknown(what: str, found: str, choices: Iterable[str], where: str = "") -> UserError:
    """Return the sentence for a name that is not known, with the nearest known one if there is any.

    >>> str(unknown("policy", "randm", ["random", "task_size"], "run.yaml, policy"))
    "run.yaml, policy: unknown policy 'randm'; did you mean 'random'? Choices: random, task_size."
    """
    names = sorted(choices)
    near = get_close_matches(found, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    place = f"{where}: " if where else ""
    return UserError(f"{place}unknown {what} {found!r}{hint} Choices: {', '.join(names)}.")
