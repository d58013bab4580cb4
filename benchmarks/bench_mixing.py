"""Our batch sampler in the Trainer of transformers, beside the ways people feed it today."""

from functools import partial

from harness import Result, ratio_result
from peer import PEERS, TASKS, interleaved, sets, training

import taskmix
from taskmix.integrations.transformers import MixtureTrainer


def against_interleaving() -> list[Result]:
    """Batches of one task from length buckets, and batches of all tasks."""
    ours = training(
        partial(MixtureTrainer, policy=taskmix.Random(TASKS)),
        train_dataset=sets(),
        train_sampling_strategy="group_by_length",
    )
    mixed = interleaved()
    return [
        ratio_result(
            f"Trainer with our sampler / interleave_datasets, {name}",
            training(train_dataset=mixed, **settings),
            ours,
            goal,
        )
        for (name, settings), goal in zip(PEERS.items(), (0.9, 2.0, 3.0), strict=True)
    ]


def against_one_data_set() -> Result:
    """What the sampler costs where there is nothing to win: one data set, no buckets."""
    # All examples of one length, so that both do the same work whatever their order.
    only = sets()["glue/mrpc"].map(lambda row: {k: _fixed(v) for k, v in row.items()})
    ours = partial(MixtureTrainer, policy=taskmix.Random(["mrpc"]))
    name = "Trainer with our sampler / Trainer alone, one data set"
    slow, fast = training(train_dataset=only), training(ours, train_dataset={"mrpc": only})
    return ratio_result(name, slow, fast, 0.97)


def gains() -> Result:
    """What Exp3.S costs: its gain is one more forward pass of each batch."""
    plain, learning = (
        training(
            partial(MixtureTrainer, policy=policy), train_dataset=sets(), **PEERS["group_by_length"]
        )
        for policy in (taskmix.Random(TASKS), taskmix.Exp3S(TASKS))
    )
    return ratio_result("Trainer with Exp3.S / with random draws", plain, learning, 0.7)


def _fixed(value: object, length: int = 48) -> object:
    return (value * length)[:length] if isinstance(value, list) else value


BENCHMARKS = [against_interleaving, against_one_data_set, gains]
