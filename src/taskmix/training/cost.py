"""What a run will cost: time, from a few timed steps, and disk space."""

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from taskmix.config import RunConfig, build_decider
from taskmix.journal import UnwrittenJournal
from taskmix.tables import duration
from taskmix.training.assembly import PreparedRun
from taskmix.training.budget import DEFAULT_EVALUATIONS, counted, total
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine
from taskmix.training.prepare import run_info_of
from taskmix.training.watching import Watchers

MIN_STEPS, MAX_STEPS = 3, 20  # that are timed, behind one that warms up
MAX_SECONDS = 2.0
TIMED_DEV_ROWS = 64  # of each task


@dataclass(frozen=True)
class RunCost:
    """The estimated cost of a run on this machine.

    Args:
        seconds: of the steps and evaluations of the whole budget; None for a selector.
        timed_steps: the number of steps that the time is estimated from.
        disk_bytes: the largest size of all checkpoints that exist at the same time.
    """

    seconds: float | None
    timed_steps: int
    disk_bytes: int

    @property
    def sentence(self) -> str:
        disk = f"at most {_megabytes(self.disk_bytes)} of checkpoints at a time"
        if self.seconds is None:
            return f"An estimate: {disk}. The time of a selector's steps is not measured."
        steps = f"{self.timed_steps} steps on this machine"
        return f"An estimate from {steps}: {duration(self.seconds)}, {disk}."


def can_estimate(run: PreparedRun) -> bool:
    """Return whether the cost can be estimated: not for a weighting or data from Python."""
    return run.config.family.key != "weighting" and not run.from_python


def is_cheap(config: RunConfig) -> bool:
    """Return whether building the model downloads nothing and passes no data through it."""
    name = config.model.hub_name
    return config.model.encoder != "bilstm" and (name is None or Path(name).exists())


def estimate_cost(run: PreparedRun, watchers: Watchers) -> RunCost:
    """Build the model and take a few steps, of which nothing is kept."""
    watchers.working("timing a few steps")
    model = run.new_model()
    config = run.config
    disk = (config.checkpoint.keep + 2) * checkpoint_bytes(model, config)
    if config.family.key != "policy":
        return RunCost(None, 0, disk)
    engine = Engine(config, run.prepared, model, cache=run.cache)
    decider = build_decider(config, run_info_of(config, run.prepared))
    with (
        closing(engine.loader),
        UnwrittenJournal(len(run.prepared)) as journal,
        torch.random.fork_rng(),
    ):
        driver: Driver = config.family.load_driver()(engine, decider, journal)
        steps, seconds = _time_steps(driver)
        evaluation = _time_evaluation(engine)
    taken = total(config) / (counted(config, driver.step, engine.spent) / driver.step)
    every = config.evaluate_every
    evaluations = DEFAULT_EVALUATIONS if every is None else config.length / every
    return RunCost(taken * seconds + evaluations * evaluation, steps, disk)


def _time_steps(driver: Driver) -> tuple[int, float]:
    """Return how many steps were timed, and the mean time of a step."""
    driver.advance()  # the first one is slower than the others
    began, steps = time.perf_counter(), 0
    while steps < MIN_STEPS or (steps < MAX_STEPS and time.perf_counter() - began < MAX_SECONDS):
        driver.advance()
        steps += 1
    return steps, (time.perf_counter() - began) / steps


def _time_evaluation(engine: Engine) -> float:
    """Return the time of an evaluation of all tasks, from the first dev rows of each."""
    seconds = 0.0
    for task, dev in engine.dev.items():
        some = dev.at_most(TIMED_DEV_ROWS)
        began = time.perf_counter()
        engine.evaluate(task, some)
        seconds += (time.perf_counter() - began) * len(dev) / len(some)
    return seconds


def checkpoint_bytes(model: nn.Module, config: RunConfig) -> int:
    """Return the size of a checkpoint: the weights, and the optimiser's state of the trained."""
    weights = sum(_bytes(tensor) for tensor in model.state_dict().values())
    trained = sum(_bytes(p) for p in model.parameters() if p.requires_grad)
    if config.optimizer.name == "adamw":
        return weights + 2 * trained  # two moments
    return weights + (trained if config.optimizer.momentum else 0)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _megabytes(size: int) -> str:
    """Format a size in bytes.

    >>> _megabytes(300_000), _megabytes(92_000_000), _megabytes(3_210_000_000)
    ('0.3 MB', '92 MB', '3.2 GB')
    """
    if size >= 10**9:
        return f"{size / 10**9:.1f} GB"
    return f"{size / 10**6:.{0 if size >= 10**7 else 1}f} MB"
