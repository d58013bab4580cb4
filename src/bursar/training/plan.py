"""What a budget would buy, before it is spent."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bursar.config import RunConfig, build_decider
from bursar.policies import Policy
from bursar.rng import stream
from bursar.training.prepare import Prepared, Reading, prepare, resolve, run_info_of, tokenizer_of

FIRST = 1000


@dataclass(frozen=True)
class Planned:
    """What the budget means for one task.

    Args:
        task: its name.
        rows: training rows.
        dev: dev rows.
        length: mean tokens of a training item.
        share: the share of the draws that the policy asks for at the start.
        epochs: how often the budget would see each training item at that share.
    """

    task: str
    rows: int
    dev: int
    length: float
    share: float
    epochs: float


def plan(
    config: RunConfig, cache: Path | None = None, reading: Reading | None = None
) -> list[Planned]:
    """The mixture that a run file asks for; reads the data, trains nothing."""
    tasks = resolve(config)
    tokenizer = tokenizer_of(tasks, config.model, cache)
    prepared = prepare(tasks, tokenizer, config, cache, reading)
    shares = _shares(config, prepared)
    return [_planned(entry, share, config) for entry, share in zip(prepared, shares, strict=True)]


def _shares(config: RunConfig, prepared: Sequence[Prepared]) -> list[float]:
    """What the policy asks for in its first draws, before it has learned anything.

    A selector or a weighting treats every task alike at the start.
    """
    decider = build_decider(config, run_info_of(config, prepared))
    if not isinstance(decider, Policy):
        return [1 / len(prepared)] * len(prepared)
    rng = stream(config.seed, "plan")
    draws = [decider.ask(rng).probabilities for _ in range(min(FIRST, config.budget.steps))]
    shares: list[float] = np.mean(draws, axis=0).tolist()
    return shares


def _planned(entry: Prepared, share: float, config: RunConfig) -> Planned:
    items = len(entry.train)
    examples = config.budget.steps * config.budget.batch * share
    return Planned(
        entry.task.name,
        entry.train.rows,
        entry.dev.encoded.rows,
        float(np.mean(entry.train.lengths())),
        share,
        examples / items,
    )
