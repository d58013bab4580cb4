"""The engine against a bare loop, and against the way people mix data sets today."""

import os
import tempfile
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import torch
from harness import Result, median_ratio, ratio_result
from peer import BATCH, LAYERS, PEERS, STEPS, TASKS, interleaved, training

from taskmix.config import RunConfig, build_decider
from taskmix.journal import Journal, Opening
from taskmix.training.assembly import assemble
from taskmix.training.engine import Engine
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


BENCHMARKS = [against_a_bare_loop, against_the_transformers_trainer]
