"""Two ranks on two cores against one, each with one thread."""

import os
import socket
import statistics
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from harness import Result, seconds
from torch import multiprocessing

from taskmix.config import RunConfig, build_decider
from taskmix.journal import Journal, Opening
from taskmix.training.assembly import Assembled, assemble
from taskmix.training.engine import Engine
from taskmix.training.policy import PolicyDriver
from taskmix.training.prepare import run_info_of
from taskmix.training.ranks import ALONE, Ranks, joined

TASKS = ["glue/mrpc", "glue/rte", "glue/cola", "glue/sst2"]
STEPS, REPEATS, GOAL = 8, 5, 1.7


def _config() -> RunConfig:
    """The batch is the same for one rank and for two, who share it."""
    return RunConfig(
        tasks=TASKS,
        model={"encoder": "minilm"},
        policy={"name": "cycle", "ratio": dict.fromkeys(TASKS, 1)},
        budget={"steps": 100_000, "batch": 32},
        device="cpu",
        data=os.environ["TASKMIX_DATA"],
    )


def _driver(parts: Assembled, ranks: Ranks) -> PolicyDriver:
    info = run_info_of(parts.config, parts.prepared)
    path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    journal = Journal.create(path, Opening("bench", info.tasks, {}, 1, {}, {}))
    engine = Engine(parts.config, parts.prepared, parts.model, ranks=ranks)
    return PolicyDriver(engine, build_decider(parts.config, info), journal)


def _rank(rank: int, port: int, found) -> None:
    """Measure the first rank alone while the other waits, then both, and so on."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    with joined(_config()) as ranks:
        together = _driver(assemble(_config()), ranks)
        alone = _driver(assemble(_config()), ALONE)
        ratios = []
        for repeat in range(REPEATS + 1):
            one = seconds(lambda: _steps(alone)) if rank == 0 else 0.0
            dist.barrier()
            two = seconds(lambda: _steps(together))
            dist.barrier()
            if repeat:  # the first one warms up
                ratios.append(one / two)
        if rank == 0:
            found.put(statistics.median(ratios))
        dist.barrier()


def _steps(driver: PolicyDriver) -> None:
    for _ in range(STEPS):
        driver.advance()


def two_ranks_against_one() -> list[Result]:
    """Examples a second of two ranks, over those of one rank: the same batches, the same steps."""
    if not os.environ.get("TASKMIX_DATA") or len(os.sched_getaffinity(0)) < 2:
        return []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    multiprocessing.spawn(_rank, (port, found), nprocs=2)
    ratio = found.get()
    name = "two ranks / one rank, one thread each, examples/s"
    return [Result(name, ratio, "x", f">= {GOAL}", ratio >= GOAL)]


BENCHMARKS = [two_ranks_against_one]
