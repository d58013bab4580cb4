"""How ranks that torchrun has started find each other, also after a restart."""

import os
import secrets
import time
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from taskmix.training.launch import Launch

PAUSE = 0.02
"""Seconds between two looks into the store."""


def meeting_store(launch: Launch, patience: timedelta) -> Store | None:
    """Return a store that only the ranks of this start see; None where torch's own is as good.

    torchrun keeps one store over all restarts, in which the addresses of processes that died stay,
    and its count of restarts differs between machines. So the ranks agree on a name for this start
    first, below which they find nothing old: each writes a new word, the first rank answers it
    with the name, until all have said that they know it.

    Args:
        launch: how this process was started.
        patience: how long to wait for an answer of the store.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, launch.count, is_master=False, timeout=patience)
    name = _name_given(store, launch.count) if launch.first else _name_heard(store, launch.rank)
    return PrefixStore(name, store)


def _name_given(store: Store, count: int) -> str:
    """Answer the words of all other ranks, again and again: the first one may be an old one."""
    name, waiting = secrets.token_hex(8), set(range(1, count))
    while waiting:
        for rank in waiting:
            if store.check([_word(rank)]):
                store.set(_answer(rank), f"{store.get(_word(rank)).decode()} {name}")
        waiting = {rank for rank in waiting if not store.check([f"{name}/{rank}"])}
        time.sleep(PAUSE)
    return name


def _name_heard(store: Store, rank: int) -> str:
    """Write a new word, and wait for the answer to it."""
    word, heard, name = secrets.token_hex(8), "", ""
    store.set(_word(rank), word)
    while heard != word:
        time.sleep(PAUSE)
        if store.check([_answer(rank)]):
            heard, name = store.get(_answer(rank)).decode().split()
    store.set(f"{name}/{rank}", "here")
    return name


def _word(rank: int) -> str:
    return f"taskmix/word/{rank}"


def _answer(rank: int) -> str:
    return f"taskmix/answer/{rank}"
