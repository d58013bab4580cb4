"""What an α step costs, what the deltas weigh, how fast frozen layers train."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from harness import Result, median_ratio
from torch import Tensor, nn
from torch.nn import functional

from taskmix.models.build import build
from taskmix.models.spec import ModelSpec
from taskmix.tasks.batches import FROZEN_STATES, ready_batch
from taskmix.tasks.kinds import Classify
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.weighting.deltas import Deltas

WIDTH, DEV = 512, 256


def network() -> nn.Sequential:
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def passes(tasks: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """One α step over so many tasks, and a plain forward and backward, on the same dev batch."""
    torch.manual_seed(0)
    model, images = network(), torch.randn(DEV, WIDTH)
    labels = torch.randint(10, (DEV,))
    deltas = Deltas(model, tasks, target=0)
    for task in range(tasks):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1e-3 * torch.randn_like(parameter))
        deltas.collect(task)
        deltas.restore()

    def plain() -> None:
        model.zero_grad(set_to_none=True)
        functional.cross_entropy(model(images), labels).backward()

    def step() -> None:
        deltas.mix([1.0 / tasks] * tasks)
        plain()
        deltas.slope()

    return step, plain


def alpha_step() -> Result:
    ratio = median_ratio(*passes(2), repeats=41)
    return Result("α step over 2 tasks / plain pass", ratio, "x", "<= 1.3", ratio <= 1.3)


def further_tasks() -> Result:
    two, plain = passes(2)
    sixteen, _ = passes(16)
    growth = (median_ratio(sixteen, plain, 41) - median_ratio(two, plain, 41)) / 14
    return Result("each task from 2 to 16 adds", 100 * growth, "%", "<= 5", growth <= 0.05)


def peak_copies(tasks: int) -> float:
    """Peak memory of an α step in copies of the parameters, measured in a process of its own.

    The model, its gradients and the base are three; the goal leaves half a one to torch.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_peak_copies, (tasks,))


def _peak_copies(tasks: int) -> float:
    torch.set_num_threads(1)
    warm = nn.Linear(2048, 2048)  # so that what the backend keeps for itself is not counted
    functional.mse_loss(warm(torch.randn(2, 2048)), torch.zeros(2, 2048)).backward()
    del warm
    before = _memory("VmRSS")
    model = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(6)])
    copy = sum(parameter.numel() * 4 for parameter in model.parameters())
    inputs = torch.randn(2, 2048)
    deltas = Deltas(model, tasks, target=0)
    for task in range(tasks):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01)
        deltas.collect(task)
        deltas.restore()
    for _ in range(3):
        deltas.mix([1.0 / tasks] * tasks)
        model.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        deltas.slope()
    return (_memory("VmHWM") - before) / copy


def _memory(what: str) -> int:
    """Bytes of this process, now (VmRSS) or at most so far (VmHWM); its parent's do not count."""
    rows = Path("/proc/self/status").read_text().splitlines()
    [row] = [row for row in rows if row.startswith(what)]
    return int(row.split()[1]) * 1024


def memory() -> Result:
    extra = max(peak_copies(tasks) - tasks for tasks in (2, 5))
    return Result(
        "peak memory of an α step, copies beside the deltas", extra, "", "<= 3.5", extra <= 3.5
    )


def kept_states() -> Result:
    """A training pass over text with 5 of 6 layers frozen, from the text and from kept states."""
    tokenizer = Tokenizer.train(["a few words to begin with"], 100, max_length=64)
    spec = ModelSpec(encoder="small", layers=6, freeze=5, width=384, attention_heads=12)
    model = build(spec, {"task": Classify(("no", "yes"))}, tokenizer, seed=1).train()
    ids = torch.randint(5, tokenizer.vocabulary, (16, 52))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad(), model.frozen.recording() as states:
        model(ready_batch("task", np.arange(16), inputs, {}))

    def trained(columns: dict[str, Tensor]) -> None:
        model.zero_grad(set_to_none=True)
        batch = ready_batch("task", np.arange(16), columns, {})
        model(batch)["task"].square().mean().backward()

    ratio = median_ratio(
        lambda: trained(inputs), lambda: trained(inputs | {FROZEN_STATES: states[0]}), 21
    )
    name = "training pass, 5 of 6 layers frozen: from text / from kept states"
    return Result(name, ratio, "x", ">= 2", ratio >= 2)


BENCHMARKS = [alpha_step, further_tasks, memory, kept_states]
