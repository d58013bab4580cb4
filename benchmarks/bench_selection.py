"""MT-Uncertainty's cost a step, beside the published way, on eight GLUE tasks.

The published way pads every candidate to 128 tokens, scores all of them in one forward pass with
dropout on, and takes the chosen ones through a second forward and a backward pass. It has no score
of its own for a regression (it copies another task's); here it gets ours, from the same pass.
The data are looked for under TASKMIX_DATA; without it there is nothing to measure.
"""

import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from harness import Result, median_ratio, microseconds

from taskmix.config import RunConfig
from taskmix.journal import Journal, Opening
from taskmix.models.build import build
from taskmix.selection import MTUncertainty, example_scores
from taskmix.tasks.batches import Batch
from taskmix.training.assembly import tokenizer_of
from taskmix.training.engine import Engine
from taskmix.training.optimizer import trained
from taskmix.training.prepare import Prepared, prepare, resolve
from taskmix.training.scoring import RESIDUAL_RATE
from taskmix.training.selecting import SelectionDriver

TASKS = ["cola", "sst2", "mrpc", "stsb", "rte", "qnli", "mnli", "qqp"]
LENGTH = 128
BATCH = 16


def configured(freeze: int) -> RunConfig:
    return RunConfig(
        tasks=[f"glue/{task}" for task in TASKS],
        model={"encoder": "minilm", "layers": 3, "freeze": freeze},
        budget={"steps": 1000, "batch": BATCH},
        data=os.environ["TASKMIX_DATA"],
        device="cpu",
    )


@cache
def data() -> tuple[list[Prepared], object]:
    config = configured(0)
    tasks = resolve(config)
    tokenizer = tokenizer_of(tasks, config)
    return prepare(tasks, tokenizer, config), tokenizer


def driver(freeze: int = 0, dropout: bool = True, every: int = 1) -> SelectionDriver:
    config = configured(freeze)
    prepared, tokenizer = data()
    kinds = {entry.task.name: entry.task.kind for entry in prepared}
    model = build(config.model, kinds, tokenizer, config.seed)
    if not dropout:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    journal = Journal.create(path, Opening("bench", list(kinds), {}, 1, {}, {}))
    selector = MTUncertainty(list(kinds), BATCH, every=every, pool=BATCH)
    return SelectionDriver(Engine(config, prepared, model), selector, journal)


class Published:
    """The published way, on the streams, the model and the optimiser of a driver."""

    def __init__(self, host: SelectionDriver) -> None:
        self.host = host
        self.engine = host.engine
        self.residuals = dict.fromkeys(host.engine.tasks, 1.0)

    def select(self) -> list[Batch]:
        """Score all candidates in one pass, padded to the full length."""
        engine = self.engine
        candidates = [engine.loader.next(task) for task in engine.tasks]
        engine.model.train()
        with torch.no_grad():
            logits = self.logits(candidates)
        scores = {
            batch.tasks[0]: self.scores(batch, out)
            for batch, out in zip(candidates, logits, strict=True)
        }
        [selection] = self.host.decider.choose(scores)
        items = {
            batch.tasks[0]: batch.parts[0].items[selection.chosen[batch.tasks[0]]]
            for batch in candidates
        }
        return [engine.loader.of({task: of}) for task, of in items.items() if len(of)]

    def scores(self, batch: Batch, logits: torch.Tensor) -> np.ndarray:
        [part] = batch
        kind = self.engine.tasks[part.task].kind
        if kind.name == "regress":
            error = 2 * float(kind.loss(logits, part.columns))
            self.residuals[part.task] += RESIDUAL_RATE * (error - self.residuals[part.task])
        p = kind.distribution(logits, part.columns).double().numpy()
        return example_scores(p[None], residual=self.residuals[part.task])

    def logits(self, batches: list[Batch]) -> list[torch.Tensor]:
        """Each batch's logits, from one pass of the encoder over all of them."""
        padded = [self.padded(batch) for batch in batches]
        together = {name: torch.cat([columns[name] for columns in padded]) for name in padded[0]}
        sizes = [batch.examples for batch in batches]
        pooled = self.engine.model.encoder(together).pooled.split(sizes)
        heads = self.engine.model.heads
        return [heads[b.tasks[0]](part) for b, part in zip(batches, pooled, strict=True)]

    @staticmethod
    def padded(batch: Batch) -> Mapping[str, torch.Tensor]:
        names = ("input_ids", "attention_mask", "token_type_ids")
        zeros = torch.zeros((batch.examples, 1), dtype=torch.int64)
        columns = {name: batch.inputs.get(name, zeros) for name in names}
        return {
            name: torch.nn.functional.pad(column, (0, LENGTH - column.shape[1]))
            for name, column in columns.items()
        }

    def step(self) -> None:
        """Select, then forward and backward over the chosen ones."""
        batches = self.select()
        optimizer = self.host.engine.optimizer
        optimizer.zero_grad(set_to_none=True)
        losses = []
        for batch, logits in zip(batches, self.logits(batches), strict=True):
            [part] = batch
            loss = self.engine.tasks[part.task].kind.loss(logits, part.columns)
            losses.append(loss * (len(part.items) / BATCH))
        torch.stack(losses).sum().backward()
        torch.nn.utils.clip_grad_norm_(list(trained(optimizer)), 1.0)
        optimizer.step()


def same_choice() -> Result:
    """Without dropout both choose the same examples, step by step."""
    ours, theirs = driver(dropout=False), Published(driver(dropout=False))
    same, steps = 0, 10
    for step in range(1, steps + 1):
        [chosen] = ours.select(step)
        found = {task: items.tolist() for task, items in chosen.items.items()}
        published = theirs.select()
        same += found == {b.tasks[0]: b.parts[0].items.tolist() for b in published}
    name = "steps with the examples of the published way, dropout off"
    return Result(name, same, f"of {steps}", "all", same == steps)


def beside_published(name: str, freeze: int = 0, every: int = 1) -> Result:
    ours, theirs = driver(freeze, every=every), Published(driver(freeze))

    def slow() -> None:
        for _ in range(every):
            theirs.step()

    def fast() -> None:
        for _ in range(every):
            ours.advance()

    ratio = median_ratio(slow, fast, repeats=9 if every == 1 else 3)
    return Result(name, ratio, "times faster", ">= 3", ratio >= 3)


def a_step() -> Result:
    return beside_published("MT-Uncertainty step, 8 GLUE tasks, b = 16")


def a_step_frozen() -> Result:
    return beside_published("the same with 2 of 3 layers frozen", freeze=2)


def a_step_pooled() -> Result:
    return beside_published("the same, 16 candidates a task scored for 4 steps", every=4)


def mixed_step() -> Result:
    """Eight tasks of four examples each: one pass over all of them against one pass a task."""
    host = driver()
    engine = host.engine
    rng = np.random.default_rng(1)
    sizes = {task: len(items) for task, items in engine.loader.items.items()}
    steps = [{task: rng.integers(size, size=4) for task, size in sizes.items()} for _ in range(8)]
    weights = dict.fromkeys(sizes, 1 / len(sizes))

    def one_pass() -> None:
        for number, chosen in enumerate(steps, 1):
            engine.step(number, engine.loader.of(chosen), weights)

    def a_pass_a_task() -> None:
        for chosen in steps:
            engine.model.train()
            engine.optimizer.zero_grad(set_to_none=True)
            for task, items in chosen.items():
                batch = engine.loader.of({task: items})
                (engine.losses(batch)[task] * weights[task]).backward()
            torch.nn.utils.clip_grad_norm_(list(trained(engine.optimizer)), 1.0)
            engine.optimizer.step()

    ratio = median_ratio(a_pass_a_task, one_pass, repeats=9)
    name = "mixed step of 8 tasks, 4 examples each: one pass / a pass a task"
    return Result(name, ratio, "times faster", ">= 1.2", ratio >= 1.2)


def choice() -> Result:
    """What the decision itself costs: 10 tasks of 32 candidates."""
    rng = np.random.default_rng(1)
    tasks = [f"task-{number}" for number in range(10)]
    selector = MTUncertainty(tasks, 32)
    scores = {task: rng.random(32) for task in tasks}
    took = microseconds(lambda: [selector.choose(scores) for _ in range(100)], calls=100)
    return Result("choosing 32 of 320 candidates", took, "us", "<= 1000 us", took <= 1000)


BENCHMARKS = [choice]
if "TASKMIX_DATA" in os.environ:
    BENCHMARKS += [same_choice, mixed_step, a_step, a_step_frozen, a_step_pooled]
