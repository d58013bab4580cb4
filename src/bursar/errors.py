"""What can go wrong, sorted by whose fault it is.

A user's mistake is one sentence and exit code 2. A fault of the world (a full disk, a loss that is
not a number) leaves the run resumable and says how; exit code 1. Anything else is our bug and gets
a traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class BursarError(Exception):
    """Anything that bursar raises on purpose; its message is a sentence for the user."""

    exit_code = 1


class UserError(BursarError):
    """A mistake in the input: says what was found, where, and what was expected."""

    exit_code = 2


class RunInterruptedError(BursarError):
    """The world got in the way; the run folder is whole and the message says how to go on."""


class StoppedError(BursarError):
    """The user, or a cluster, asked the run to stop; a checkpoint was written.

    Args:
        message: the sentence for the user.
        signal: the signal that asked.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


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
