"""How many channels of LeNet are dead after a few epochs of MultiMNIST, method by method.

    python scripts/dead_channels.py --data MNIST

A channel is dead if no picture of the dev set makes it fire: it has no gradient either, and stays
so. Large first steps kill channels, and how large they are depends on the scale of the loss.
"""

import argparse
from pathlib import Path
from statistics import mean

import torch

from taskmix.studies.multimnist import (
    METHODS,
    TASKS,
    PairFeed,
    PairNet,
    Pairs,
    Setting,
    read_pairs,
    sgd,
)
from taskmix.training.rounds import Rounds


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of MNIST's IDX files")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    return parser.parse_args()


@torch.no_grad()
def dead(model: PairNet, pairs: Pairs) -> int:
    """Channels of the second convolution that never fire."""
    channels = model.encoder.channels(pairs.images)
    return int((channels.amax((0, 2, 3)) == 0).sum())


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    train, dev = read_pairs(options.data, "train", 10_000), read_pairs(options.data, "dev", 2_000)
    setting = Setting(options.epochs, lr=options.lr)
    print("| method | dead of 20, by seed | mean |\n|---|---|---|")
    for method in options.methods:
        counts = []
        for seed in range(1, options.seeds + 1):
            weighting, model = METHODS[method](TASKS[0]), PairNet(seed)
            feed = PairFeed(model, train, dev, weighting, seed, setting.batch)
            rounds = Rounds(
                weighting, model, feed, lambda model=model: sgd(model, setting), seed=seed
            )
            for _ in range(setting.epochs):
                rounds.advance()
            counts.append(dead(model, dev))
        print(f"| {method} | {', '.join(map(str, counts))} | {mean(counts):.1f} |", flush=True)


if __name__ == "__main__":
    main()
