"""Several processes that train together."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch


def _nothing() -> None:
    """Do nothing."""


def on_ranks(
    work: Callable[[], None],
    meanwhile: Callable[[], None] = _nothing,
    ranks: int = 2,
    exitcode: int = 0,
) -> None:
    """Do something in several processes that train together; raise what any of them raised."""
    # Forked, so that nothing is imported again: that would take most of the time.
    context = multiprocessing.get_context("fork")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    errors = context.SimpleQueue()
    processes = [
        context.Process(target=_rank, args=(rank, ranks, port, work, errors))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    meanwhile()
    for process in processes:
        process.join(300)
    hung = [process for process in processes if process.exitcode is None]
    for process in hung:
        process.kill()
    if not errors.empty():
        pytest.fail(errors.get())
    assert not hung, "the ranks wait for each other"
    assert [process.exitcode for process in processes] == [exitcode] * ranks


def _rank(rank: int, ranks: int, port: int, work: Callable[[], None], errors: Any) -> None:
    try:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        torch.set_num_threads(1)
        work()
    except BaseException:
        errors.put(f"rank {rank}: {traceback.format_exc()}")
        raise
