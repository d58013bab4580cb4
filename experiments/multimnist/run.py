"""Table 1 of Kourdis et al. (2020) in our numbers: MultiMNIST, one target digit at a time.

    python -m experiments.multimnist.run [--lr 0.025] [--table]

TASKMIX_DATA names the folder of the data. Finished outcomes are not made again; an unfinished run
is resumed.
"""

import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one run a core beats several cores a run

from experiments.multimnist.study import METHODS, TARGETS, Setting, run_study
from experiments.shared import Outcomes, command_line, markdown, publish
from experiments.targets import TargetResult, TargetResults, paired
from experiments.targets import table as method_table

PAPER_LR = 0.05
HELD = "alpha_vil_kept"
"""A variant that holds the sum of the coefficients; its outcomes are stored, its code is gone."""


def results_of(outcomes: Outcomes, lr: float) -> TargetResults:
    return TargetResults(outcomes, f"{lr:g}/", {"lr": lr})


def train(method: str, target: str, seed: int, setting: Setting, folder: Path) -> TargetResult:
    """Train in a worker process; the model is not kept."""
    result = run_study(method, target, seed, setting, folder)
    shutil.rmtree(folder)
    return result


def table(outcomes: Outcomes) -> str:
    parts = []
    rates = sorted({values["lr"] for values in outcomes.values() if "lr" in values}, reverse=True)
    for lr in rates:
        results = results_of(outcomes, lr).load(list(METHODS), TARGETS)
        parts.append(f"Learning rate {lr:g}, accuracy in percent:\n\n{method_table(results)}")
    return "\n\n".join([*parts, held_table(outcomes, rates)]).rstrip()


def held_table(outcomes: Outcomes, rates: Sequence[float]) -> str:
    """Return the test scores of alphaVIL beside those of the variant that holds the sum."""
    rows, pooled = [], []
    for number, lr in enumerate(rates):
        both = results_of(outcomes, lr).load(["alpha_vil", HELD], TARGETS)
        for target in TARGETS:
            scores = [
                [100 * o.test for o in both if (o.method, o.target) == (method, target)]
                for method in ("alpha_vil", HELD)
            ]
            if all(scores):
                ours, held = map(mean, scores)
                difference = f"{held - ours:+.2f}"
                rows.append([f"{lr:g}", target, f"{ours:.2f}", f"{held:.2f}", difference])
        pooled += [TargetResult(**{**vars(o), "seed": 100 * number + o.seed}) for o in both]
    if not rows:
        return ""
    gap, p = paired(pooled, HELD, "alpha_vil", lambda o: 100 * o.test)
    head = ["learning rate", "target", "alpha_vil", "sum held", "difference"]
    return f"{markdown(head, rows)}\n\nSum held less alpha_vil, all pairs: {gap:+.2f}, p {p:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--pairs", type=int, default=10_000, help="training pairs")
    parser.add_argument("--dev", type=int, default=2_000, help="dev pairs")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=PAPER_LR, help="the paper's is 0.05")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="runs at a time")
    options = parser.parse_args(arguments)
    setting = Setting(options.epochs, options.pairs, options.dev, lr=options.lr)
    results, began = results_of(options.outcomes, options.lr), time.monotonic()
    jobs = [
        (method, target, seed)
        for seed in range(1, options.seeds + 1)
        for method in options.methods
        for target in options.targets
        if not options.table and results.name(method, target, seed) not in options.outcomes
    ]
    if jobs:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.workers, context) as pool:
            futures = [
                pool.submit(train, *job, setting, options.runs / results.name(*job)) for job in jobs
            ]
            for number, future in enumerate(as_completed(futures), 1):
                result = future.result()
                results.add(result)
                minutes = (time.monotonic() - began) / 60
                line = f"[{number}/{len(jobs)}, {minutes:.1f} min] {summary(result)}"
                print(line, file=sys.stderr, flush=True)
    publish(options.outcomes, table(options.outcomes))


def summary(result: TargetResult) -> str:
    name = f"{result.method} {result.target} seed {result.seed}"
    scores = f"dev {100 * result.dev:.2f} test {100 * result.test:.2f}"
    return f"{name}: {scores} (epoch {result.epoch}, {result.seconds} s)"


if __name__ == "__main__":
    main()
