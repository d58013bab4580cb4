"""What a budget would buy, before it is spent."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taskmix.config import RunConfig
from taskmix.training.assembly import (
    check_decider,
    own_encoder,
    tokenizer_of,
    with_language_model,
)
from taskmix.training.prepare import (
    Prepared,
    prepare,
    read_texts,
    resolve,
    run_info_of,
    token_batches,
)
from taskmix.training.watching import Watchers


@dataclass(frozen=True)
class Planned:
    """What the budget means for one task.

    Args:
        task: its name.
        rows: training rows.
        dev: dev rows.
        length: mean tokens of a training item.
        share: its share of all examples that the budget trains on (of all tokens, if it counts
            these), before anything is learned.
        epochs: how often the budget would see each training item at that share.
        cut: how many of the training rows are cut at the longest sequence.
        dev_cut: how many of the dev rows.
    """

    task: str
    rows: int
    dev: int
    length: float
    share: float
    epochs: float
    cut: int
    dev_cut: int


def plan(
    config: RunConfig, cache: Path | None = None, watchers: Watchers | None = None
) -> list[Planned]:
    """Return the mixture that a run file asks for; reads the data, trains nothing."""
    tasks = resolve(config)
    config = with_language_model(config, tasks)
    own = own_encoder(config)
    tokenizer = tokenizer_of(tasks, config, cache, own) if read_texts(tasks) else None
    prepared = prepare(tasks, tokenizer, config, cache, watchers)
    sizes = run_info_of(config, prepared).sizes
    driver = config.family.load_driver()
    examples = driver.expected_examples(check_decider(config, prepared), config, sizes)
    total = sum(examples.values())
    return [
        Planned(
            entry.task.name,
            entry.train.rows,
            entry.dev.rows,
            float(np.mean(entry.train.lengths())),
            examples[entry.task.name] / total,
            examples[entry.task.name] / _batches(entry, config),
            entry.train.cut,
            entry.dev.items.cut,
        )
        for entry in prepared
    ]


def _batches(entry: Prepared, config: RunConfig) -> float:
    """Return how many examples' worth of batches an epoch has, a batch counted as full."""
    if config.budget.tokens is None:
        return len(entry.train)
    return token_batches(entry, config.budget.tokens) * config.budget.batch
