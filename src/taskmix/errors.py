"""Errors and exit codes."""

# A user's mistake is one sentence and exit code 2. A full disk, or a loss that is not a number,
# leaves the run resumable and says how; exit code 1. A cluster that takes the machine away gets
# exit code 75, which means that the same run shall be resumed. Anything else is a bug of ours and
# gets a traceback.

import signal
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from pydantic import ValidationError

EXIT_PREEMPTED = 75
"""The exit code of a run that was preempted: a checkpoint is there, resume it (EX_TEMPFAIL)."""
PREEMPTION_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""Signals by which clusters announce that a process has to end."""


class TaskmixError(Exception):
    """Anything that taskmix raises on purpose; its message is a sentence for the user."""

    exit_code = 1

    @property
    def reason(self) -> str:
        """The message without its advice."""
        return str(self).partition(";")[0]


class UserError(TaskmixError):
    """A mistake in the input: says what was found, where, and what was expected."""

    exit_code = 2


class OtherDistributionError(UserError):
    """A loaded policy does not have the distribution that was saved with its state."""


class RunInterruptedError(TaskmixError):
    """The run failed, but can be resumed; the message says how."""


class DivergedError(RunInterruptedError):
    """A loss is not finite; a study goes on with its other runs."""


class StoppedError(TaskmixError):
    """A signal stopped the run; a checkpoint was written.

    The exit code is 75 after SIGTERM and SIGUSR1, which mean that a cluster wants the machine back,
    and 130 after Ctrl-C.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
        self.exit_code = EXIT_PREEMPTED if signal in PREEMPTION_SIGNALS else 128 + signal


def untrusted(name: str, where: str) -> UserError:
    """Return the error for a class of the user's own that nobody has allowed to be imported."""
    return UserError(
        f"{where}: needs code of its own, {name}, which is not run unasked; trust it with "
        "--trust-code, in Python with trust_code=True"
    )


def unknown(what: str, found: str, choices: Iterable[str], where: str = "") -> UserError:
    """Return the error for an unknown name, with the nearest of the choices.

    >>> str(unknown("policy", "randm", ["random", "task_size"], "run.yaml, policy"))
    "run.yaml, policy: unknown policy 'randm'; did you mean 'random'? Choices: random, task_size."
    """
    names = sorted(choices)
    hint = did_you_mean(found, names) or "."
    place = f"{where}: " if where else ""
    return UserError(f"{place}unknown {what} {found!r}{hint} Choices: {', '.join(names)}.")


def did_you_mean(found: str, choices: Iterable[str]) -> str:
    """Return a hint with the choice most similar to a name, or an empty text.

    >>> did_you_mean("NO", ["Yes", "No"])
    "; did you mean 'No'?"
    """
    by_folded = {choice.casefold(): choice for choice in choices}
    near = get_close_matches(found.casefold(), by_folded, n=1)
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""


def explain(error: "ValidationError", model: Any = None, where: str = "", key: str = "key") -> str:
    """Return one sentence about one of pydantic's errors: place, expected, found.

    An unknown key comes first, because a misspelled key is a missing one too.
    The fields of `model`, the validated class, are the choices for an unknown key; the sentence
    calls it a `key`.
    """
    first, *rest = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    more = f" (and {len(rest)} more)" if rest else ""
    path = [str(part) for part in first["loc"] if part not in _UNION_MEMBERS]
    if first["type"] == "extra_forbidden" and model is not None:
        place = ": ".join(filter(None, (where, ".".join(path[:-1])))) or "run"
        return str(unknown(key, path[-1], _keys(model, first["loc"][:-1]), place)) + more
    place = "".join(f"{part}: " for part in (where, ".".join(path)) if part)
    if first["type"] == "missing":
        return f"{place}expected a value, found none{more}"
    if first["type"] == "sequence_str":
        return f"{place}expected a list, such as [{first['input']!r}], found a text{more}"
    message = first["msg"].removeprefix("Value error, ")
    found = "" if ", found " in message else f", found {first['input']!r:.60}"
    return f"{place}{message[0].lower()}{message[1:]}{found}{more}"


_UNION_MEMBERS = ("str", "int", "float", "dict[str,any]")
"""Parts of a place that name a member of a union, not a key of the user's."""


def _keys(model: Any, path: Iterable[Any]) -> list[str]:
    for part in path:
        section = model.model_fields[part].annotation
        # A section that may be left out is `Section | None`.
        sections = [member for member in get_args(section) if hasattr(member, "model_fields")]
        model = sections[0] if sections else section
    return [field.alias or name for name, field in model.model_fields.items()]
