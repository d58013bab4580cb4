"""Table 1 of Kourdis et al. (2020) in our numbers: MultiMNIST, one target digit at a time.

    python scripts/multimnist.py --data MNIST --out OUTCOMES

MNIST is the folder of the four IDX files, gzipped or not. Every finished run is a JSON file in
OUTCOMES and is not run again; the table is printed from what is there.
"""

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a run a core beats several cores a run

import torch

from taskmix.studies.multimnist import METHODS, TASKS, Data, Setting, read_pairs, trained
from taskmix.studies.target_results import Job, TargetResult, TargetResults, table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of MNIST's IDX files")
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--pairs", type=int, default=10_000, help="training pairs")
    parser.add_argument("--dev", type=int, default=2_000, help="dev pairs")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.05, help="step size; the paper's is 0.05")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--targets", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="runs at a time")
    return parser.parse_args()


def load(options: argparse.Namespace) -> None:
    """In each worker: the data, once."""
    global DATA, OPTIONS
    torch.set_num_threads(1)
    sizes = {"train": options.pairs, "dev": options.dev, "test": None}
    DATA = Data(*(read_pairs(options.data, split, pairs) for split, pairs in sizes.items()))
    OPTIONS = options


def run(job: Job) -> list[TargetResult]:
    outcomes = trained(*job, DATA, Setting(OPTIONS.epochs, lr=OPTIONS.lr))
    for outcome in outcomes:
        TargetResults(OPTIONS.out).save(outcome)
    return outcomes


def summary(outcome: TargetResult) -> str:
    name = f"{outcome.method} {outcome.target} seed {outcome.seed}"
    scores = f"dev {100 * outcome.dev:.2f} test {100 * outcome.test:.2f}"
    return f"{name}: {scores} (epoch {outcome.epoch}, {outcome.seconds} s)"


def main() -> None:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    outcomes, began = TargetResults(options.out), time.monotonic()
    todo = outcomes.left(options.methods, options.targets, range(1, options.seeds + 1))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context, load, (options,)) as pool:
        for done, future in enumerate(as_completed([pool.submit(run, job) for job in todo]), 1):
            minutes = (time.monotonic() - began) / 60
            for outcome in future.result():
                line = f"[{done}/{len(todo)}, {minutes:.1f} min] {summary(outcome)}"
                print(line, file=sys.stderr, flush=True)
    print(
        f"{options.pairs} pairs, {options.dev} dev, {options.epochs} epochs, step size "
        f"{options.lr}, accuracy in percent\n"
    )
    print(table(outcomes.load(list(METHODS), TASKS)))


if __name__ == "__main__":
    main()
