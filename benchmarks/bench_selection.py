"""MT-Uncertainty's cost a step, beside the published way, on eight GLUE tasks.

The published way pads every candidate to 128 tokens, scores all of them in one forward pass with
dropout on, and takes the chosen ones through a second forward and a backward pass. It has no score
of its own for a regression (it copies another task's); here it gets ours, from the same pass.
The data are looked for under BURSAR_DATA; without it there is nothing to measure.
"""

import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from bursar.training.trainer import Job
from harness import Result, median_ratio, microseconds

from bursar.config import RunConfig
from bursar.journal import Journal, Opening
from bursar.models.build import build
from bursar.selection import MTUncertainty, example_scores
from bursar.tasks.batches import Batch
from bursar.training.optimizer import trained
from bursar.training.prepare import Prepared, prepare, resolve, tokenizer_of
from bursar.training.scoring import LATEST
from bursar.training.selecting import SelectionTrainer

TASKS = ["cola", "sst2", "mrpc", "stsb", "rte", "qnli", "mnli", "qqp"]
LENGTH = 128
BATCH = 16


def configured(freeze: int) -> RunConfig:
    return RunConfig(
        tasks=[f"glue/{task}" for task in TASKS],
        model={"encoder": "minilm", "layers": 3, "freeze": freeze},
        budget={"steps": 1000, "batch": BATCH},
        data=os.environ["BURSAR_DATA"],
        device="cpu",
    )


@cache
def data() -> tuple[list[Prepared], object]:
    config = configured(0)
    tasks = resolve(config)
    tokenizer = tokenizer_of(tasks, config.model)
    return prepare(tasks, tokenizer, config), tokenizer


def trainer(freeze: int = 0, dropout: bool = True, every: int = 1) -> SelectionTrainer:
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
    return SelectionTrainer(Job(config, prepared, model, journal), selector)


class Published:
    """The published way, on the streams, the model and the optimiser of a trainer."""

    def __init__(self, host: SelectionTrainer) -> None:
        self.host = host
        self.residuals = dict.fromkeys(host.tasks, 1.0)

    def select(self) -> list[Batch]:
        """Score all candidates in one pass, padded to the full length."""
        host = self.host
        candidates = [host.streams[task].next() for task in host.tasks]
        host.model.train()
        with torch.no_grad():
            logits = self.logits(candidates)
        scores = {
            batch.task: self.scores(batch, out)
            for batch, out in zip(candidates, logits, strict=True)
        }
        [selection] = host.selector.choose(scores)
        chosen = [(batch, selection.chosen[batch.task]) for batch in candidates]
        return [
            Batch(batch.task, batch.items[places], host.streams[batch.task].split.batch(items))
            for batch, places in chosen
            if len(items := batch.items[places])
        ]

    def scores(self, batch: Batch, logits: torch.Tensor) -> np.ndarray:
        kind = self.host.tasks[batch.task].kind
        columns = {"labels": torch.from_numpy(batch.columns["labels"])}
        if kind.name == "regress":
            error = 2 * float(kind.loss(logits, columns))
            self.residuals[batch.task] += LATEST * (error - self.residuals[batch.task])
        p = kind.distribution(logits, columns).double().numpy()
        return example_scores(p[None], residual=self.residuals[batch.task])

    def logits(self, batches: list[Batch]) -> list[torch.Tensor]:
        """Each batch's logits, from one pass of the encoder over all of them."""
        padded = [self.padded(batch) for batch in batches]
        together = {name: torch.cat([columns[name] for columns in padded]) for name in padded[0]}
        pooled = self.host.model.encoder(together).pooled.split([len(b.items) for b in batches])
        heads = self.host.model.heads
        return [heads[batch.task](part) for batch, part in zip(batches, pooled, strict=True)]

    @staticmethod
    def padded(batch: Batch) -> Mapping[str, torch.Tensor]:
        names = ("input_ids", "attention_mask", "token_type_ids")
        rows = len(batch.items)
        columns = {}
        for name in names:
            column = batch.columns.get(name, np.zeros((rows, 1), dtype=np.int64))
            wide = np.pad(column, ((0, 0), (0, LENGTH - column.shape[1])))
            columns[name] = torch.from_numpy(wide)
        return columns

    def step(self) -> None:
        """Select, then forward and backward over the chosen ones."""
        host = self.host
        batches = self.select()
        host.optimizer.zero_grad(set_to_none=True)
        losses = []
        for batch, logits in zip(batches, self.logits(batches), strict=True):
            columns = {"labels": torch.from_numpy(batch.columns["labels"])}
            loss = host.tasks[batch.task].kind.loss(logits, columns)
            losses.append(loss * (len(batch.items) / BATCH))
        torch.stack(losses).sum().backward()
        torch.nn.utils.clip_grad_norm_(list(trained(host.optimizer)), 1.0)
        host.optimizer.step()


def same_choice() -> Result:
    """Without dropout both choose the same examples, step by step."""
    ours, theirs = trainer(dropout=False), Published(trainer(dropout=False))
    same, steps = 0, 10
    for step in range(1, steps + 1):
        [chosen] = ours.select(step)
        found = {batch.task: batch.items.tolist() for batch in chosen.batches}
        same += found == {batch.task: batch.items.tolist() for batch in theirs.select()}
    name = "steps with the examples of the published way, dropout off"
    return Result(name, same, f"of {steps}", "all", same == steps)


def beside_published(name: str, freeze: int = 0, every: int = 1) -> Result:
    ours, theirs = trainer(freeze, every=every), Published(trainer(freeze))

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


def choice() -> Result:
    """What the decision itself costs: 10 tasks of 32 candidates."""
    rng = np.random.default_rng(1)
    tasks = [f"task-{number}" for number in range(10)]
    selector = MTUncertainty(tasks, 32)
    scores = {task: rng.random(32) for task in tasks}
    took = microseconds(lambda: [selector.choose(scores) for _ in range(100)], calls=100)
    return Result("choosing 32 of 320 candidates", took, "us", "<= 1000 us", took <= 1000)


BENCHMARKS = [choice]
if "BURSAR_DATA" in os.environ:
    BENCHMARKS += [same_choice, a_step, a_step_frozen, a_step_pooled]
