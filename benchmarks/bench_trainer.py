"""The engine against a bare loop, and against the way people mix data sets today."""

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from harness import Result, median_ratio, ratio_result
from peer import BATCH, LAYERS, PEERS, STEPS, TASKS, interleaved, training

from taskmix import Outcome, Skill, Worth
from taskmix.config import RunConfig, build_decider
from taskmix.journal import Journal, Opening
from taskmix.rng import stream
from taskmix.training.assembly import assemble
from taskmix.training.engine import Engine
from taskmix.training.meters import StepTaken
from taskmix.training.policy import PolicyDriver
from taskmix.training.prepare import run_info_of


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
        policy={"name": "random"},  # draws tasks as the peer does: their lengths differ
        budget={"steps": 100_000, "batch": BATCH},
        optimizer={"lr": 1e-5},
        data=os.environ.get("TASKMIX_DATA"),
    )


def against_a_bare_loop() -> Result:
    """The same batches through the same model, with and without everything that taskmix adds."""
    ours = _driver(_config(LAYERS))
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


def against_the_transformers_trainer() -> list[Result]:
    """Examples a second, against `interleave_datasets` and the `Trainer` of transformers."""
    ours, mixed = _driver(_config(LAYERS)), interleaved()

    def our_steps() -> None:
        for _ in range(STEPS):
            ours.advance()

    return [
        ratio_result(
            f"taskmix / transformers Trainer, {name}, examples/s",
            training(train_dataset=mixed, **settings),
            our_steps,
            goal,
        )
        for (name, settings), goal in zip(PEERS.items(), (0.9, 2.0, 3.0), strict=True)
    ]


def deciding() -> Result:
    """What the draws of `worth` take of a step."""
    ours, rng = _driver(_config(LAYERS)), stream(1, "losses")
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
    meter = ours._meters._meters[Skill]
    measure, spent, skills = meter.after, 0.0, 0

    def timed(signal: Skill, step: StepTaken) -> Mapping[str, Any]:
        nonlocal spent, skills
        began = time.perf_counter()
        measured = measure(signal, step)
        spent += time.perf_counter() - began
        skills += len(measured)
        return measured

    meter.after = timed  # type: ignore[method-assign]
    began = time.perf_counter()
    for _ in range(config.budget.steps):
        ours.advance()
    share = 100 * spent / (time.perf_counter() - began)
    name = f"signals of worth / a step ({skills} skills in {config.budget.steps} steps)"
    return Result(name, share, "%", "<= 5", share <= 5)


BENCHMARKS = [against_a_bare_loop, against_the_transformers_trainer, deciding, measuring]
