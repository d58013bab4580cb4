"""The engine against a bare loop, and against the way people mix data sets today."""

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import torch
from harness import Result, median_ratio
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from taskmix import Outcome, Signal, Worth
from taskmix.config import RunConfig, build_decider
from taskmix.journal import Journal, Opening
from taskmix.models.encoders import packaged_minilm, quiet
from taskmix.rng import stream
from taskmix.tasks import catalogue
from taskmix.tasks.rows import TextRow
from taskmix.training.assembly import assemble
from taskmix.training.engine import Engine
from taskmix.training.policy import PolicyDriver
from taskmix.training.prepare import run_info_of

TASKS = ["glue/mrpc", "glue/rte", "glue/cola", "glue/sst2"]
STEPS = 20


def _driver(config: RunConfig) -> PolicyDriver:
    parts = assemble(config)
    info = run_info_of(config, parts.prepared)
    path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    journal = Journal.create(path, Opening("bench", info.tasks, {}, 1, {}, {}))
    engine = Engine(config, parts.prepared, parts.model)
    return PolicyDriver(engine, build_decider(config, info), journal)


def _config(layers: int) -> RunConfig:
    return RunConfig(
        tasks=TASKS,
        model={"encoder": "minilm", "layers": layers},
        budget={"steps": 100_000, "batch": 16},
        optimizer={"lr": 1e-5},
        data=os.environ.get("TASKMIX_DATA"),
    )


def against_a_bare_loop() -> Result:
    """The same batches through the same model, with and without everything that taskmix adds."""
    ours = _driver(_config(2))
    loader = ours.engine.loader
    batches = [loader.next(name) for name, _ in zip(cycle(TASKS), range(8), strict=False)]
    queue, names = cycle(batches), cycle([batch.tasks[0] for batch in batches])
    loader.next = lambda task: next(queue)  # type: ignore[method-assign]
    ask = ours.decider.ask

    def ask_for_the_next(rng):  # the batches are cut already: the draw has to name theirs
        draw, name = ask(rng), next(names)
        return replace(draw, task=name, index=ours.decider.tasks.index(name))

    ours.decider.ask = ask_for_the_next  # type: ignore[method-assign]
    model, optimizer, kinds = ours.engine.model, ours.engine.optimizer, ours.engine.model.kinds
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def bare_loop() -> None:
        model.train()
        for batch in batches:
            [part] = batch
            optimizer.zero_grad(set_to_none=True)
            kinds[part.task].loss(model(batch)[part.task], part.columns).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()

    def our_loop() -> None:
        for _ in batches:
            ours.advance()

    ratio = median_ratio(bare_loop, our_loop, repeats=15)
    return Result("driver / bare loop, speed", ratio, "x", ">= 0.98", ratio >= 0.98)


def against_the_transformers_trainer() -> Result:
    """Examples a second, against `interleave_datasets` and the `Trainer` of transformers."""
    ours = _driver(_config(2))
    theirs = _interleaved()

    def our_steps() -> None:
        for _ in range(STEPS):
            ours.advance()

    ratio = median_ratio(theirs, our_steps, repeats=5)
    return Result("taskmix / transformers Trainer, examples/s", ratio, "x", ">= 3", ratio >= 3)


def deciding() -> Result:
    """What the draws of `worth` take of a step."""
    ours, rng = _driver(_config(2)), stream(1, "losses")
    policy = Worth(TASKS)

    def decisions() -> None:
        for loss in (1.0 + 0.1 * rng.normal(size=STEPS)).tolist():
            policy.tell(Outcome(policy.ask(rng), loss=loss))

    def our_steps() -> None:
        for _ in range(STEPS):
            ours.advance()

    while policy.draws < 20 * len(TASKS):  # from here on it fits lines
        decisions()
    share = 100 * median_ratio(decisions, our_steps)
    return Result("ask+tell of worth / a step", share, "%", "<= 5", share <= 5)


def measuring() -> Result:
    """What the skills that `worth` asks for take of a training, with a tagger that asks most."""
    config = RunConfig(
        tasks=[*TASKS, "wnut17"],
        model={"encoder": "minilm", "layers": 2, "max_length": 64},
        policy={"name": "worth"},
        budget={"steps": 500, "batch": 16},
        optimizer={"lr": 1e-4},
        data=os.environ.get("TASKMIX_DATA"),
    )
    ours = _driver(config)
    measured, spent, skills = ours._skill, 0.0, 0

    def timed(task: str, signal: Signal | None) -> float | None:
        nonlocal spent, skills
        began = time.perf_counter()
        found = measured(task, signal)
        spent += time.perf_counter() - began
        skills += found is not None
        return found

    ours._skill = timed  # type: ignore[method-assign]
    began = time.perf_counter()
    for _ in range(config.budget.steps):
        ours.advance()
    share = 100 * spent / (time.perf_counter() - began)
    name = f"signals of worth / a step ({skills} skills in {config.budget.steps} steps)"
    return Result(name, share, "%", "<= 5", share <= 5)


class Mixed(torch.nn.Module):
    """What people write: an encoder, a head for each task, chosen by a column."""

    def __init__(self, folder: str, layers: int) -> None:
        super().__init__()
        config = AutoConfig.from_pretrained(folder)
        config.num_hidden_layers = layers
        self.encoder = AutoModel.from_pretrained(folder, config=config)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(config.hidden_size, 2) for _ in TASKS)

    def forward(self, input_ids, attention_mask, token_type_ids, task, labels):
        hidden = self.encoder(input_ids, attention_mask, token_type_ids).last_hidden_state
        pooled = (hidden * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        logits = torch.stack([head(pooled) for head in self.heads], 1)
        chosen = logits[torch.arange(len(task)), task]
        return {"loss": torch.nn.functional.cross_entropy(chosen, labels), "logits": chosen}


def _interleaved() -> Callable[[], None]:
    from datasets import Dataset, disable_progress_bars, interleave_datasets

    disable_progress_bars()
    folder = str(packaged_minilm())
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = Mixed(folder, 2)

    def rows(number: int, name: str) -> Dataset:
        task = catalogue.find(name)
        found = [row for row in task.split("train").rows() if isinstance(row, TextRow)]
        labels = {label: place for place, label in enumerate(task.kind.labels)}
        encoded = tokenizer(
            [row.text for row in found],
            [row.pair for row in found] if found[0].pair is not None else None,
            truncation=True,
            max_length=128,
            padding="max_length",
        )
        return Dataset.from_dict(
            dict(encoded)
            | {"labels": [labels[row.label] for row in found], "task": [number] * len(found)}
        )

    mixed = interleave_datasets([rows(number, name) for number, name in enumerate(TASKS)], seed=1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=16,
        max_steps=STEPS,
        learning_rate=1e-5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        use_cpu=True,
        remove_unused_columns=False,
    )

    def steps() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Trainer(
                model,
                arguments,
                train_dataset=mixed,
                data_collator=DataCollatorWithPadding(tokenizer),
            ).train()

    return steps


BENCHMARKS = [against_a_bare_loop, against_the_transformers_trainer, deciding, measuring]
