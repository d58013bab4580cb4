"""Two readings of DIW on a small MultiMNIST: the weights move after failed tries, or after all.

    python -m experiments.multimnist.diw [--table]

TASKMIX_DATA names the folder of the data. Finished outcomes are not made again; an unfinished run
is resumed. The table goes to `diw.md`.
"""

import os
import shutil
from collections.abc import Sequence
from statistics import mean

os.environ.setdefault("OMP_NUM_THREADS", "1")

from experiments.multimnist.study import TARGETS, Setting, run_study
from experiments.shared import Outcomes, command_line, markdown, publish, spread
from experiments.targets import TargetResults, paired

METHODS = ("diw", "diw_every_try")


def results_of(outcomes: Outcomes) -> TargetResults:
    return TargetResults(outcomes, "small/")


def first_move(weights: Sequence[Sequence[float]]) -> str:
    """Return the first round after which the weights differ from equal ones, from 1."""
    moved = [max(shares) - min(shares) > 1e-6 for shares in weights]
    return str(moved.index(True) + 1) if True in moved else "never"


def table(outcomes: Outcomes) -> str:
    found = results_of(outcomes).load(METHODS, TARGETS)
    rows = []
    for target in TARGETS:
        for method in METHODS:
            results = [o for o in found if (o.method, o.target) == (method, target)]
            if results:
                scores = [100 * o.dev for o in results], [100 * o.test for o in results]
                share = mean(o.weights[-1][TARGETS.index(target)] for o in results)
                first = ", ".join(first_move(o.weights) for o in results)
                rows.append([target, method, *map(spread, scores), first, f"{share:.2f}"])
    head = ["target", "method", "dev", "test", "weights first move in round", "target's share"]
    text = markdown(head, rows)
    if min([sum(o.method == method for o in found) for method in METHODS]) < 2:
        return text
    gap, p = paired(found, "diw_every_try", "diw", lambda o: 100 * o.test)
    return f"{text}\n\ndiw_every_try less diw on the test sets, all pairs: {gap:+.2f}, p {p:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--dev", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    setting = Setting(options.epochs, options.pairs, options.dev)
    results = results_of(options.outcomes)
    for seed in [] if options.table else range(1, options.seeds + 1):
        for method in METHODS:
            for target in TARGETS:
                name = results.name(method, target, seed)
                if name not in options.outcomes:
                    folder = options.runs / name
                    results.add(run_study(method, target, seed, setting, folder))
                    shutil.rmtree(folder)
    publish(options.outcomes, table(options.outcomes), "diw.md")


if __name__ == "__main__":
    main()
