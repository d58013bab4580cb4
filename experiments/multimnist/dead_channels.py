"""How many channels of LeNet are dead after a few epochs of MultiMNIST, method by method.

    python -m experiments.multimnist.dead_channels

A channel is dead if no picture of the dev set makes it fire: it has no gradient either, and stays
so. Large first steps kill channels, and how large they are depends on the scale of the loss.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from experiments.multimnist.study import METHODS, Setting, study_config, task_name
from experiments.shared import Outcomes, command_line, markdown, publish
from taskmix import run
from taskmix.config import with_sets
from taskmix.training.inference import TrainedRun, load_run
from taskmix.training.prepare import read_split

TARGET = "left"


@torch.no_grad()
def dead(trained: TrainedRun) -> int:
    """Channels of the second convolution that never fire on the dev pairs."""
    fired: list[torch.Tensor] = []
    encoder: Any = trained.model.encoder
    hidden = encoder.network.hidden.register_forward_pre_hook(
        lambda _, inputs: fired.append(inputs[0].unflatten(1, (20, -1)).amax((0, 2)))
    )
    task = trained.task(task_name(TARGET))
    pixels = torch.tensor(read_split(task, "dev", None).items.dense["pixels"])  # a memory map
    for part in pixels.split(1000):
        encoder({"pixels": part})
    hidden.remove()
    return int((torch.stack(fired).amax(0) == 0).sum())


def table(outcomes: Outcomes) -> str:
    rows = []
    for method in METHODS:
        counts = [values["dead"] for values in outcomes.values(f"dead/{method}-")]
        if counts:
            rows.append([method, ", ".join(map(str, counts)), f"{mean(counts):.1f}"])
    return markdown(["method", "dead of 20, by seed", "mean"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--dev", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args(arguments)
    setting = Setting(options.epochs, options.pairs, options.dev)
    for method in [] if options.table else options.methods:
        for seed in range(1, options.seeds + 1):
            name = f"dead/{method}-{seed}"
            if name not in options.outcomes:
                config = study_config(method, TARGET, seed, setting)
                last = ["evaluate.keep=last", f"evaluate.every={options.epochs}"]
                with tempfile.TemporaryDirectory() as folder:
                    run(with_sets(config, last), Path(folder) / "run")
                    count = dead(load_run(Path(folder) / "run"))
                options.outcomes.add(name, {"method": method, "seed": seed, "dead": count})
    publish(options.outcomes, table(options.outcomes), "dead_channels.md")


if __name__ == "__main__":
    main()
