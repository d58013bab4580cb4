"""How torchrun, or another launcher, started this process. Importing this does not load torch."""

import os
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from taskmix.errors import UserError

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Launch:
    rank: int = 0
    count: int = 1
    local: int = 0  # the rank's number on its machine
    restarts: int = 0  # of the processes of this machine, by torchrun
    watched: bool = False  # by torchrun


def launched() -> Launch:
    """Return how this process was started: alone unless a launcher's variables are set."""
    launch = Launch(
        _number("RANK", 0),
        _number("WORLD_SIZE", 1),
        _number("LOCAL_RANK", 0),
        _number("TORCHELASTIC_RESTART_COUNT", 0),
        "TORCHELASTIC_RUN_ID" in os.environ,
    )
    return launch if all(name in os.environ for name in LAUNCHER_VARIABLES) else Launch()


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdecimal()):
        raise UserError(f"{name}: expected a number in the environment, found {text!r}")
    return int(text)


def rendezvous_store(launch: Launch, patience: timedelta) -> "Store | None":
    """Return a store for the ranks of this start only; None where torch's default suffices."""
    # torchrun keeps one store over all restarts, in which the addresses of dead processes stay,
    # and its count of restarts differs between machines. So the ranks first agree on a prefix for
    # this start: each writes a new token, and the first rank answers it with the prefix.
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, launch.count, is_master=False, timeout=patience)
    prefix = _await_prefix(store, launch.rank) if launch.rank else _send_prefix(store, launch.count)
    return PrefixStore(prefix, store)


def _send_prefix(store: "Store", count: int) -> str:
    """Answer the tokens of all other ranks until each has confirmed; a token may be outdated."""
    prefix, waiting = os.urandom(8).hex(), set(range(1, count))
    while waiting:
        for rank in waiting:
            if store.check([_token(rank)]):
                store.set(_answer(rank), f"{store.get(_token(rank)).decode()} {prefix}")
        waiting = {rank for rank in waiting if not store.check([f"{prefix}/{rank}"])}
        time.sleep(POLL_SECONDS)
    return prefix


def _await_prefix(store: "Store", rank: int) -> str:
    """Write a new token and wait for the answer to it."""
    token, answered, prefix = os.urandom(8).hex(), "", ""
    store.set(_token(rank), token)
    while answered != token:
        time.sleep(POLL_SECONDS)
        if store.check([_answer(rank)]):
            answered, prefix = store.get(_answer(rank)).decode().split()
    store.set(f"{prefix}/{rank}", "here")
    return prefix


def _token(rank: int) -> str:
    return f"taskmix/word/{rank}"


def _answer(rank: int) -> str:
    return f"taskmix/answer/{rank}"
