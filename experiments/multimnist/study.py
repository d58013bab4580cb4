"""MultiMNIST as Kourdis et al. (2020) ran it: one digit is the target, the other is auxiliary.

`experiments.multimnist.run` trains every method, target and seed and prints the tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.targets import TargetResult
from taskmix.config import RunConfig
from taskmix.journal import Round, read
from taskmix.tasks.task import Task
from taskmix.training.folder import JOURNAL
from taskmix.training.inference import load_run
from taskmix.training.run import run

TARGETS = ("left", "right")
PAPER = {"name": "alpha_vil", "weights_on": "loss", "split_dev": False}
METHODS: dict[str, dict[str, Any]] = {
    "single": {"name": "single"},
    "multi": {"name": "joint"},
    "diw": {"name": "diw"},
    "diw_every_try": {"name": "diw_every_try"},
    "alpha_vil_paper": {**PAPER, "tuner": "descent"},
    "alpha_vil_sweeps": {**PAPER, "tuner": "sweeps"},
    "alpha_vil": {"name": "alpha_vil"},
}


@dataclass(frozen=True)
class Setting:
    """What all runs of the study share; the optimiser is the paper's.

    Args:
        epochs: rounds of a run.
        pairs: training pairs.
        dev: dev pairs.
        batch: pairs in a batch.
        lr: learning rate of SGD.
        data: the data folder; None means the environment's TASKMIX_DATA.
    """

    epochs: int = 30
    pairs: int = 10_000
    dev: int = 2_000
    batch: int = 256
    lr: float = 0.05
    data: str | None = None


def study_config(method: str, target: str, seed: int, setting: Setting) -> RunConfig:
    """Return the run of one method for one target digit."""
    return RunConfig(
        name=f"{method}-{target}-{seed}",
        tasks=[{"name": task_name(side), "rows": setting.pairs} for side in TARGETS],
        model={"encoder": "lenet", "dropout": 0.0},
        weighting={**METHODS[method], "target": task_name(target)},
        budget={"rounds": setting.epochs, "batch": setting.batch},
        optimizer={
            "name": "sgd",
            "lr": setting.lr,
            "momentum": 0.9,
            "head_factor": 1.0,
            "weight_decay": 0.0,
            "clip": 0.0,
        },
        evaluate={"every": 1, "batch": 256, "examples": setting.dev},
        seed=seed,
        data=setting.data,
        device="cpu",
    )


def task_name(side: str) -> str:
    return f"multimnist/{side}"


def run_study(
    method: str,
    target: str,
    seed: int,
    setting: Setting,
    folder: Path,
    tasks: Sequence[Task] = (),
    cache: Path | None = None,
) -> TargetResult:
    """Train one method for one target digit, or go on with the run in the folder.

    Args:
        method: one of `METHODS`.
        target: one of `TARGETS`.
        seed: of the weights and the data order.
        setting: what all runs share.
        folder: the run folder.
        tasks: tasks made in Python in place of the two of the catalogue.
        cache: the cache folder; the default one if None.
    """
    config = study_config(method, target, seed, setting)
    result = run(config, folder, tasks=tasks, resume=True, cache=cache)
    trained, name = load_run(folder, tasks=tasks), task_name(target)
    dev, test = (trained.evaluate(split, name, cache)[name].score for split in ("dev", "test"))
    rounds = [record for record in read(folder / JOURNAL) if isinstance(record, Round)]
    return TargetResult(
        method=method,
        target=target,
        seed=seed,
        dev=dev,
        test=test,
        epoch=result.step,
        alphas=[list(record.alphas.values()) for record in rounds],
        weights=[list(record.shares().values()) for record in rounds],
        seconds=round(sum(record.seconds or 0.0 for record in rounds), 1),
    )
