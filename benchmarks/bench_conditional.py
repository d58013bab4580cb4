"""What conditioning costs a training step, beside the plain encoder's; ratios within one run.

An encoder of MiniLM's size (6 layers, 384 wide) with random weights: the time does not depend on
what they are. A step is forward and backward in training mode, with nothing frozen.

The last figures are of whole MT-Uncertainty steps of the run's own driver, half of the layers
frozen: with what the fixed layers gave in scoring, and computing it again in training. With all
parts nothing is fixed: alignment and attention biases train below every layer.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from harness import Result, median_ratio
from transformers import BertConfig, BertModel

from taskmix.config import RunConfig
from taskmix.journal import Journal, Opening
from taskmix.models.conditional import PARTS, ConditionalEncoder, condition
from taskmix.selection import MTUncertainty
from taskmix.training.assembly import assemble
from taskmix.training.engine import Engine
from taskmix.training.selecting import Chosen, SelectionDriver

TASKS = [f"task-{number}" for number in range(8)]
SEQUENCES, TOKENS = 16, 64


def encoder() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return BertModel(config, add_pooling_layer=False).train()


def batch(padded: bool) -> dict[str, torch.Tensor]:
    ids = torch.randint(1000, 30000, (SEQUENCES, TOKENS))
    mask = torch.ones_like(ids)
    if padded:
        mask[1::2, TOKENS * 3 // 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def step(model: torch.nn.Module, columns: dict[str, torch.Tensor]) -> Callable[[], None]:
    def work() -> None:
        model.zero_grad(set_to_none=True)
        model(**columns).last_hidden_state.square().mean().backward()

    return work


def for_tasks(columns: dict[str, torch.Tensor], tasks: int) -> dict[str, torch.Tensor]:
    return {**columns, "task_ids": torch.arange(SEQUENCES) % tasks}


def conditioned(parts: tuple[str, ...] = PARTS, **options: object) -> ConditionalEncoder:
    return condition(encoder(), TASKS, parts, freeze=0, **options)


def mixed_batch() -> Result:
    model, columns = conditioned(), batch(padded=True)
    eight, one = for_tasks(columns, 8), for_tasks(columns, 1)
    ratio = median_ratio(step(model, eight), step(model, one), repeats=9)
    name = "conditioned step, a batch of 8 tasks beside one of 1 task"
    return Result(name, ratio, "times", "<= 1.05", ratio <= 1.05)


def beside_plain() -> list[Result]:
    results = []
    for layout in ("base", "large"):
        for padded in (True, False):
            columns = batch(padded)
            model = conditioned(layout=layout)
            slow, fast = step(model, for_tasks(columns, 8)), step(encoder(), columns)
            ratio = median_ratio(slow, fast, repeats=9)
            what = "padded" if padded else "full"
            name = f"conditioned step beside the plain encoder's, {layout} layout, {what} batch"
            goal = "<= 1.25" if layout == "base" else "-"
            results.append(Result(name, ratio, "times", goal, layout == "large" or ratio <= 1.25))
    return results


def each_part() -> list[Result]:
    columns = batch(padded=True)
    results = []
    for part in PARTS:
        slow, fast = step(conditioned((part,)), for_tasks(columns, 8)), step(encoder(), columns)
        ratio = median_ratio(slow, fast, repeats=5)
        results.append(Result(f"the same with {part} alone", ratio, "times", "-", True))
    return results


ROWS, BATCH = 64, 16


def tasks(folder: Path) -> list[dict[str, str]]:
    """Eight tasks of random words, 60 to a text."""
    rng = np.random.default_rng(1)
    words = [f"word{number}" for number in range(400)]
    entries = []
    for name in TASKS:
        lines = ["text,y"]
        lines += [f"{' '.join(rng.choice(words, 60))},{row % 2}" for row in range(ROWS)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        files = dict.fromkeys(("train", "dev"), str(folder / f"{name}.csv"))
        entries.append({"name": name, "kind": "classify", "text": "text", "label": "y", **files})
    return entries


class Fresh(SelectionDriver):
    """The driver without any reuse: frozen layers run whenever something passes."""

    def _begin(self) -> None:
        self._begun = True

    def select(self, step: int) -> list[Chosen]:
        return [replace(chosen, states=None) for chosen in super().select(step)]


class SameStep(Fresh):
    """Training starts from what scoring computed in the same step; nothing is kept for later."""

    def select(self, step: int) -> list[Chosen]:
        return SelectionDriver.select(self, step)


def driver(cls: type[SelectionDriver], parts: tuple[str, ...], folder: Path) -> SelectionDriver:
    config = RunConfig(
        tasks=tasks(folder),
        model={
            "encoder": "small",
            "width": 384,
            "layers": 6,
            "attention_heads": 12,
            "vocabulary": 500,
            "max_length": TOKENS,
            "conditional": {"parts": parts},
        },
        selection={"name": "mt_uncertainty"},
        budget={"steps": 1000, "batch": BATCH},
        device="cpu",
    )
    made = assemble(config, cache=folder)
    names = [entry.task.name for entry in made.prepared]
    path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    journal = Journal.create(path, Opening("bench", names, {}, 1, {}, {}))
    engine = Engine(config, made.prepared, made.model, cache=folder)
    return cls(engine, MTUncertainty(names, BATCH), journal)


def reuse() -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory() as name:
        for cls, parts, goal in (
            (SelectionDriver, ("norm", "bottleneck"), 1.5),
            (SameStep, ("norm", "bottleneck"), None),
            (SelectionDriver, PARTS, None),
        ):
            slow, fast = (driver(each, parts, Path(name)) for each in (Fresh, cls))
            ratio = median_ratio(slow.advance, fast.advance, repeats=7)
            kept = "kept states" if cls is SelectionDriver else "reuse within a step"
            what = f"MT-Uncertainty, 8 tasks, half frozen, {kept}, {' + '.join(parts)}"
            ok = goal is None or ratio >= goal
            results.append(Result(what, ratio, "times faster", f">= {goal}" if goal else "-", ok))
    return results


BENCHMARKS = [mixed_batch, beside_plain, each_part, reuse]
